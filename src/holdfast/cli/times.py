"""Times and durations as options. Times without a zone are UTC; printed times are UTC."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime, timedelta
from typing import Final

_ISO: Final = re.compile(
    r"P(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_SHORT: Final = re.compile(r"(?:(?P<days>\d+)d)?(?:(?P<hours>\d+)h)?(?:(?P<minutes>\d+)m)?(?:(?P<seconds>\d+)s)?")


def datetime_option(text: str) -> int:
    """Milliseconds since 1970, never negative: Kafka gives negative timestamps another meaning."""
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time such as 2026-05-31T08:30:00Z (without a zone it is UTC)"
        ) from None
    return max(0, _milliseconds(read if read.tzinfo is not None else read.replace(tzinfo=UTC)))


def duration_option(text: str) -> timedelta:
    for pattern in (_ISO, _SHORT):
        match = pattern.fullmatch(text)
        given = {name: float(value) for name, value in match.groupdict().items() if value} if match else {}
        if given:
            try:
                return timedelta(**given)
            except OverflowError:
                break
    raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 90s, 15m, 2h, 1d12h or P1DT12H")


def since_option(text: str) -> int:
    """A time, or how long ago; milliseconds since 1970."""
    try:
        return ago(duration_option(text))
    except argparse.ArgumentTypeError:
        pass
    try:
        return datetime_option(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a duration such as 2h nor a time such as 2026-05-31T08:30:00Z"
        ) from None


def ago(span: timedelta) -> int:
    try:
        return max(0, _milliseconds(datetime.now(UTC) - span))
    except OverflowError:
        return 0


def format_time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _milliseconds(point: datetime) -> int:
    return int(point.timestamp() * 1000)
