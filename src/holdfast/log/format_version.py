"""The format of a data directory. A newer format is rejected; an older one is upgraded before anything else is read.

The JSON file `holdfast-format` contains the format. A directory without it, also one of Apache Kafka, has format 1. An
upgrade goes from one format to the next. Each step can be repeated after a crash, and the file is replaced after the
last one.
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
    """Format 2 added this file, and `broker-configs.json`, which is optional."""


#: Format → the step that upgrades it to the next one.
_STEPS: Final[Mapping[int, Callable[[Path], None]]] = {1: _from_1}


def upgrade(directory: Path, *, is_new: bool) -> int:
    """Upgrades the directory and returns its old format. `DataDirectoryError` if it is newer than this Holdfast."""
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
