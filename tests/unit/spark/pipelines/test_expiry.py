"""Windows that are over for long enough are dropped, and stay dropped; all others are as a plain recount says."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.client.errors import ConfigError
from holdfast.spark.pipelines.aggregate.aggregate_settings import keep_us
from holdfast.spark.pipelines.aggregate.expiry import dropped_before
from holdfast.spark.pipelines.aggregate.version import Version, decode_version, encode_version
from tests.unit.spark.pipelines.aggregate_harness import MINUTE_US, TOPIC, WINDOWED, AggregateHarness, Record

HOUR_US = 60 * MINUTE_US
KEPT_US = 5 * MINUTE_US


def world(directory: Path, *minutes: float) -> AggregateHarness:
    """Given: one partition with a record of one key for each of these minutes."""
    made = AggregateHarness(directory, WINDOWED)
    made.produce(0, [Record(b"anna", 1, round(minute * MINUTE_US)) for minute in minutes])
    return made


def counts(given: AggregateHarness) -> dict[int, int]:
    """Of each window that is shown, by its minute."""
    return {window // MINUTE_US: row[0] for (_, _, _, window), row in given.totals().items() if window is not None}


def newest(given: AggregateHarness) -> Version:
    found = given.store().newest((TOPIC, 0))
    assert found is not None
    return found


def test_a_window_expires_when_it_ended_that_long_before_the_newest_record(tmp_path: Path) -> None:
    given = world(tmp_path, 0, 1, 2, 6.5, 7)

    given.member("a", keep_us=KEPT_US).apply((0, 0, 4))
    before = counts(given)
    given.member("a", keep_us=KEPT_US).apply((0, 4, 5))

    assert before == {1: 1, 2: 1, 6: 1}, "1 ended at 2, four and a half minutes before 6.5"
    assert counts(given) == {2: 1, 6: 1, 7: 1}
    assert newest(given).dropped_before_us == 2 * MINUTE_US


def test_by_default_nothing_is_dropped(tmp_path: Path) -> None:
    given = world(tmp_path, 0, 1, 600)

    given.member("a").apply((0, 0, 3))

    assert counts(given) == {0: 1, 1: 1, 600: 1}
    assert newest(given).dropped_before_us is None


def test_a_record_that_comes_too_late_brings_no_window_back(tmp_path: Path) -> None:
    given = world(tmp_path, 0, 0, 20, 0, 20)
    keeping = given.member("a", keep_us=KEPT_US)
    keeping.apply((0, 0, 3))

    keeping.apply((0, 3, 4))
    too_late = counts(given)
    given.member("b").apply((0, 4, 5))

    assert too_late == {20: 1}
    assert counts(given) == {20: 2}, "nor does one who keeps everything from now on"


@given(
    minutes=st.lists(st.integers(0, 40), min_size=1, max_size=40),
    cuts=st.sets(st.integers(1, 39)),
    kept=st.integers(1, 30),
)
def test_what_is_shown_follows_from_the_records_however_they_are_cut_into_batches(
    minutes: list[int], cuts: set[int], kept: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        # given
        made = world(Path(directory), *minutes)
        ends = sorted({*(cut for cut in cuts if cut < len(minutes)), len(minutes)})

        # when different members take the batches in turn
        for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            made.member(f"m{number % 2}", keep_us=kept * MINUTE_US).apply((0, start, end))

        # then
        over = max(minutes) - kept
        whole = {
            identity: row for identity, row in made.recount((0, 0, len(minutes))).items() if _ends(identity) > over
        }
        assert made.totals() == whole


def _ends(identity: tuple[Any, ...]) -> int:
    return int(identity[3]) // MINUTE_US + 1


def test_dropped_windows_leave_the_disk(tmp_path: Path) -> None:
    # given so many windows of a hundred keys each
    rows: dict[str, int] = {}
    for name, keep in (("kept", None), ("dropped", KEPT_US)):
        made = AggregateHarness(tmp_path / name, WINDOWED)
        member = made.member("a", keep_us=keep)
        for minute in range(60):
            made.produce(0, [Record(b"%d" % key, 1, minute * MINUTE_US) for key in range(100)])
            member.apply((0, minute * 100, (minute + 1) * 100))
        rows[name] = sum(run.rows for run in newest(made).runs)

    # then
    assert rows["kept"] == 6_000
    assert rows["dropped"] <= 3 * 6 * 100, "six windows are shown; runs are merged when they have doubled"


def test_a_record_from_the_future_drops_nothing_early() -> None:
    now_us = 100 * HOUR_US
    assert dropped_before(None, now_us - 7, HOUR_US, WINDOWED, now_us) == 99 * HOUR_US - MINUTE_US
    assert dropped_before(None, 900 * HOUR_US, HOUR_US, WINDOWED, now_us) == 99 * HOUR_US


def test_what_is_lost_does_not_bring_windows_back(tmp_path: Path) -> None:
    given = world(tmp_path, 0, 20, 20, 20)
    member = given.member("a", keep_us=KEPT_US, fail_on_data_loss=False)
    member.apply((0, 0, 2))

    member.apply((0, 3, 4))

    assert counts(given) == {20: 2}
    assert newest(given).dropped_before_us == 15 * MINUTE_US


def test_a_version_of_before_there_was_a_limit_has_all_windows() -> None:
    version = Version(TOPIC, 0, 10, 20, dropped_before_us=7)
    content = encode_version(version)

    assert decode_version(content, version.where, version.name) == version
    older = content.replace(b',"dropped_before_us":7', b"")
    assert older != content
    assert decode_version(older, version.where, version.name).dropped_before_us is None


def test_a_length_that_cannot_be_is_refused() -> None:
    assert keep_us("7 days", "1 hour") == 7 * 24 * HOUR_US
    assert keep_us(timedelta(minutes=5), "1 hour") == KEPT_US
    assert keep_us(None, None) is None
    with pytest.raises(ConfigError, match=r"keep_windows '7 days': there are no windows"):
        keep_us("7 days", None)
    with pytest.raises(ConfigError, match=r"keep_windows 'soon' is no length of time"):
        keep_us("soon", "1 hour")
    with pytest.raises(ConfigError, match=r"keep_windows '0 days'"):
        keep_us("0 days", "1 hour")
