"""Which format a data directory has: a newer one is refused, an older one upgraded before anything else is read.

The file `holdfast-format` says so, as JSON. A directory without it has format 1, in which there was none; so has one
that Apache Kafka wrote. An upgrade goes step by step, each step can be repeated after a kill, and the file is replaced
when all are done.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from holdfast.log import disk
from holdfast.log.errors import DataDirectoryError

_logger = logging.getLogger(__name__)

FORMAT_FILE: Final = "holdfast-format"
FORMAT: Final = 2


def _from_1(_: Path) -> None:
    """Format 2 has this file, and may have `broker-configs.json`; all else is as it was."""


#: Format → what makes the next one of it.
_STEPS: Final[Mapping[int, Callable[[Path], None]]] = {1: _from_1}


def bring_up_to_date(directory: Path, *, is_new: bool) -> int:
    """The format the directory had; it now has ours. `DataDirectoryError` if it is newer than this Holdfast."""
    found = FORMAT if is_new else _read(directory)
    if found > FORMAT:
        raise DataDirectoryError(
            f"{directory} was written by a newer Holdfast (format {found}, this one knows {FORMAT}); "
            "use that version, or another directory"
        )
    for number in range(found, FORMAT):
        _STEPS[number](directory)
    if is_new or found < FORMAT:
        disk.replace_file(directory / FORMAT_FILE, json.dumps({"format": FORMAT}).encode())
    if found < FORMAT:
        _logger.info("data directory upgraded", extra={"fields": {"path": str(directory), "from": found, "to": FORMAT}})
    return found


def _read(directory: Path) -> int:
    path = directory / FORMAT_FILE
    try:
        found = json.loads(path.read_text())["format"]
    except FileNotFoundError:
        return 1
    except (ValueError, KeyError, TypeError):
        found = None
    if type(found) is not int or found < 1:
        raise DataDirectoryError(f"{path} is damaged; restore it from a backup before starting")
    return found
