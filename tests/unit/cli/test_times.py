"""Times and durations as people write them."""

import argparse
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.cli.times import ago, datetime_option, duration_option, format_time, since_option


@pytest.mark.parametrize(
    "text",
    ["2026-05-31T08:30:00Z", "2026-05-31T08:30:00", "2026-05-31T10:30:00+02:00", "2026-05-31 08:30:00.000"],
)
def test_a_time_without_a_zone_is_utc(text: str) -> None:
    expected = datetime(2026, 5, 31, 8, 30, tzinfo=UTC)
    assert datetime_option(text) == int(expected.timestamp() * 1000)
    assert format_time(datetime_option(text)) == "2026-05-31T08:30:00Z"


@pytest.mark.parametrize("text", ["1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.998Z", "0001-01-01"])
def test_a_time_before_1970_is_never_one_of_kafkas_special_ones(text: str) -> None:
    assert datetime_option(text) == since_option(text) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", timedelta(seconds=90)),
        ("15m", timedelta(minutes=15)),
        ("2h", timedelta(hours=2)),
        ("1d12h", timedelta(days=1, hours=12)),
        ("P1DT12H", timedelta(days=1, hours=12)),
        ("PT0.5S", timedelta(seconds=0.5)),
        ("P2W", timedelta(weeks=2)),
    ],
)
def test_durations(text: str, expected: timedelta) -> None:
    assert duration_option(text) == expected


@pytest.mark.parametrize("text", ["", "P", "PT", "1", "h", "2h1d", "-2h", "1x", "9" * 20 + "d"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        duration_option(text)


def test_since_takes_either() -> None:
    assert since_option("1970-01-01T00:00:01Z") == 1000
    hour_ago = ago(timedelta(hours=1))
    assert 0 <= since_option("1h") - hour_ago < 10_000
    assert since_option("900000d") == 0, "before there were computers"
