"""What can go wrong with what a pipeline keeps. None of it costs a record: what is entered stays, the rest follows."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

from holdfast.client.errors import HoldfastError
from holdfast.spark.log_ends import DataLoss

__all__ = ["Damaged", "DataLoss", "QueryFailed", "Stopped", "TooNew", "Unwritable"]

_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT}


class Damaged(HoldfastError):
    """A file that cannot be what was written."""

    FATAL = True


class TooNew(HoldfastError):
    """A file of a format that this version does not know."""

    FATAL = True

    @classmethod
    def because(cls, shown: str, found: int, known: int) -> TooNew:
        return cls(
            f"{shown} has format {found}, and this version of Holdfast knows {known}: update it; nothing was changed"
        )


class Unwritable(HoldfastError):
    """The file system said no."""

    RETRIABLE = True

    @classmethod
    def because(cls, path: Path | str, error: OSError) -> Unwritable:
        why = error.strerror or str(error)
        what = f"there is no room left for {path} ({why})" if error.errno in _NO_ROOM else f"{path}: {why}"
        return cls(
            f"{what}; nothing is lost: what is entered stays, and the rest follows when the query is started again"
        )


class QueryFailed(HoldfastError):
    """Spark has ended the query; the message is what it said, without its stack."""


class Stopped(HoldfastError):
    """The query is being stopped, and does not begin another batch."""
