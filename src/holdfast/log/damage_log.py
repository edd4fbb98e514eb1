"""Logs each damaged position of a log once, because consumers fetch it repeatedly."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from holdfast.log.errors import CorruptSegment

_logger = logging.getLogger(__name__)

_MAX_PLACES: Final = 100


class DamageLog:
    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: set[tuple[Path, int]] = set()

    def log_once(self, error: CorruptSegment) -> None:
        place = error.path, error.position
        if place not in self._places and len(self._places) < _MAX_PLACES:
            self._places.add(place)
            fields = {"file": str(error.path), "position": error.position, "reason": error.reason}
            _logger.error("damaged segment; reads of it are refused", extra={"fields": fields})
