"""Errors of a pipeline's table or state. None of them loses a record: committed entries stay, and the rest is processed
later."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

from holdfast.client.errors import HoldfastError
from holdfast.spark.watermarks import DataLoss

__all__ = ["Damaged", "DataLoss", "QueryFailed", "Stopped", "TooNew", "Unwritable"]

_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT}


class Damaged(HoldfastError):
    """A damaged file."""

    FATAL = True


class TooNew(HoldfastError):
    """A file of a format that this version does not support."""

    FATAL = True

    @classmethod
    def because(cls, shown: str, found: int, known: int) -> TooNew:
        return cls(
            f"{shown} has format {found}, and this version of Holdfast knows {known}: update it; nothing was changed"
        )


class Unwritable(HoldfastError):
    """The file system returned an error."""

    RETRIABLE = True

    @classmethod
    def because(cls, path: Path | str, error: OSError) -> Unwritable:
        why = error.strerror or str(error)
        what = f"there is no room left for {path} ({why})" if error.errno in _NO_ROOM else f"{path}: {why}"
        return cls(
            f"{what}; nothing is lost: what is entered stays, and the rest follows when the query is started again"
        )


class QueryFailed(HoldfastError):
    """Spark has ended the query; the message is Spark's, without the stack trace."""


class Stopped(HoldfastError):
    """The query is being stopped, and does not start another batch."""
