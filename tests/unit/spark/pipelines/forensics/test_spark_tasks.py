"""What the executors do, from Arrow to files, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from holdfast.cli.pipeline.forensics import _print
from holdfast.coordinator.events.causes import CauseCode
from holdfast.spark.pipelines.forensics import spark_tasks
from holdfast.spark.pipelines.forensics.delta_tables import commit_tables
from holdfast.spark.pipelines.forensics.records import RECORD_COLUMNS, RecordKind
from holdfast.spark.pipelines.forensics.report import Report, html, summarise
from holdfast.spark.pipelines.forensics.report_dir import keep_only
from holdfast.spark.pipelines.forensics.spark_tasks import RECORD_SCHEMA, analyze, filter_commits
from holdfast.spark.pipelines.forensics.tables import TABLES
from holdfast.spark.pipelines.forensics.thresholds import ForensicsThresholds
from holdfast.spark.pipelines.forensics.timeline import MAX_PICTURE_ROWS, MAX_ROWS
from tests.unit.spark.pipelines.forensics.histories import PROTOCOL_RANGE, History


def restarted(group: str) -> History:
    """Given: a dynamic member that leaves and comes back."""
    history = History(group)
    history.rebalance(1_000, 100, CauseCode.MEMBER_JOINED, 1, {"a:1": [0], "b:1": [1]}, "a:1")
    for at in range(2_000, 2_050):
        history.commit(at, 0, at)
    history.gone(3_000, "a:1", 1)
    history.rebalance(3_000, 100, CauseCode.MEMBER_LEFT, 2, {"b:1": [0, 1]}, "a:1")
    history.commit(3_500, 0, 7)
    history.rebalance(4_000, 100, CauseCode.MEMBER_JOINED, 3, {"a:2": [0], "b:1": [1]}, "a:2")
    return history


def records(*histories: History) -> Iterator[pa.RecordBatch]:
    """As the source gives them, in small batches."""
    rows = [record for history in histories for record in history.records]
    for begin in range(0, len(rows), 7):
        keys, values, times, places = zip(*rows[begin : begin + 7], strict=True)
        yield pa.RecordBatch.from_arrays(
            [pa.array(keys, pa.binary()), pa.array(values, pa.binary()), pa.array(times), pa.array(places)],
            ["key", "value", "at_ms", "offset"],
        )


def facts(*histories: History) -> list[dict[str, Any]]:
    found = [row for batch in filter_commits(records(*histories), None) for row in batch.to_pylist()]
    for history in histories:
        found += [fact._asdict() for fact in history.events]
    return sorted(found, key=lambda row: (row["group_id"], row["at_ms"], row["kind"] > RecordKind.EVENT, row["offset"]))


def in_batches(rows: list[dict[str, Any]], size: int = 5) -> Iterator[pa.RecordBatch]:
    for begin in range(0, len(rows), size):
        yield pa.RecordBatch.from_pylist(rows[begin : begin + size], RECORD_SCHEMA)


def reported(directory: Path, *histories: History) -> Report:
    """What comes of them in the end, after the page was drawn as well."""
    (answer,) = [
        row
        for batch in analyze(in_batches(facts(*histories)), str(directory), ForensicsThresholds())
        for row in batch.to_pylist()
    ]
    keep_only(directory, json.loads(answer["files"]))
    commit_tables(directory)
    report = summarise(directory, directory, ["__group_ledger"], json.loads(answer["unread"]))
    html(directory, report).encode()
    json.dumps(report.to_json()).encode()
    return report


def test_records_have_the_columns_of_the_spark_schema() -> None:
    assert [field.name for field in RECORD_SCHEMA] == [part.split()[0] for part in RECORD_COLUMNS.split(", ")]


def test_groups_are_followed_one_after_the_other_into_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_tasks, "ROW_GROUP_ROWS", 2)
    groups = [f"g{number}" for number in range(4)]
    given = facts(*(restarted(group) for group in groups))

    (report,) = [
        row for batch in analyze(in_batches(given), str(tmp_path), ForensicsThresholds()) for row in batch.to_pylist()
    ]

    assert report["problem"] is None
    keep_only(tmp_path, json.loads(report["files"]))
    summary = pq.read_table(tmp_path / "summary").to_pylist()
    assert [row["group_id"] for row in summary] == groups
    assert {(row["rebalances"], row["went_back"], row["static_rebalances"]) for row in summary} == {(3, 1, 2)}
    assert len(pq.read_table(tmp_path / "rebalances")) == 12
    assert [*pq.read_table(tmp_path / "ownership").schema.names] == TABLES["ownership"].names


def test_the_report_has_the_worst_groups_and_the_page_draws_them(tmp_path: Path) -> None:
    given = facts(*(restarted(f"<b>{number}") for number in range(12)))
    given.append({**dict.fromkeys(RECORD_SCHEMA.names), "kind": 0, "body": b"a kind", "after": 3, "group_id": ""})
    (answer,) = [
        row for batch in analyze(in_batches(given), str(tmp_path), ForensicsThresholds()) for row in batch.to_pylist()
    ]
    keep_only(tmp_path, json.loads(answer["files"]))
    commit_tables(tmp_path)

    report = summarise(tmp_path, tmp_path, ["__group_ledger"], json.loads(answer["unread"]))
    markup = html(tmp_path, report)

    assert report.groups == 12
    assert report.totals["rebalances"] == 36
    assert report.unread == {"a kind": 3}
    assert report.notes == ["unreadable: 3 × a kind"]
    assert markup.count("<svg") == 10
    drawing = report.drawing("<b>7")
    assert [name for name, _ in drawing.rows] == ["orders-0", "orders-1"]
    assert [cell.member for cell in drawing.rows[0][1]] == ["a:1", "b:1", "a:2"]
    assert len(drawing.marks) == 3
    with pytest.raises(KeyError):
        report.drawing("nobody")
    assert "<b>" not in markup
    assert "The timelines show the 10 groups" in markup
    assert json.loads(json.dumps(report.to_json()))["shown"][0]["causes"] == {
        CauseCode.MEMBER_JOINED: 2,
        CauseCode.MEMBER_LEFT: 1,
    }


def test_a_picture_has_more_rows_than_the_page(tmp_path: Path) -> None:
    history = History("wide")
    history.rebalance(1_000, 100, CauseCode.MEMBER_JOINED, 1, {"a:1": range(70), "b:1": range(70, 140)}, "a:1")

    report = reported(tmp_path, history)

    assert len(report.drawing("wide").rows) == MAX_PICTURE_ROWS == 100
    assert report.drawing("wide").notes == ("40 more partitions are not shown",)
    assert f"{140 - MAX_ROWS} more partitions are not shown" in html(tmp_path, report), "the control"


def logged(kind: str = "assigned", **more: Any) -> bytes:
    return json.dumps({"kind": kind, "generation": 1, **PROTOCOL_RANGE, **more}).encode()


@pytest.mark.parametrize(
    "body",
    [
        logged(generation=True),
        logged(generation=2**40),
        logged(generation=10**20),
        logged(generation=-(2**31) - 1),
        logged(members=10**12),
        logged(moved_partitions=True),
        logged(unassigned_ms=2**62),
        logged(unassigned_ms=10**30),
        b"[" * 100_000,
        b'{"kind": "assigned", "generation": ' + b"9" * 5_000 + b"}",
    ],
    ids=lambda body: body[:60].decode(),
)
def test_records_that_no_coordinator_writes_are_counted_and_cost_no_other_group(tmp_path: Path, body: bytes) -> None:
    odd = restarted("odd")
    odd.raw_event(2_000, body)

    report = reported(tmp_path, odd, restarted("other"))

    assert report.unread == {"__group_ledger: no event": 1}
    assert {row["group_id"]: row["rebalances"] for row in report.shown} == {"odd": 3, "other": 3}
    assert report.shown[0]["facts"] == report.shown[1]["facts"], "it counts for nothing"


def test_half_a_surrogate_pair_is_replaced(tmp_path: Path) -> None:
    history = History("odd")
    history.started(1_000, 0, "why\ud800", "who\ud800", reason="\udfff")
    history.raw_event(1_100, logged(cause_detail="\ud800", members=1))

    report = reported(tmp_path, history)

    assert report.unread == {}
    (row,) = pq.read_table(tmp_path / "rebalances").to_pylist()
    assert (row["cause"], row["member"], row["reason"], row["protocol"]) == ("why?", "who?", "?", "?")


@pytest.mark.parametrize("at", [-62_135_596_800_001, -(2**53), 253_402_300_800_000, 1_790_000_000_000_000])
def test_a_time_that_no_date_can_name_is_shown_as_the_nearest(tmp_path: Path, at: int) -> None:
    history = restarted("odd")
    history.raw_event(at, logged())
    history.stored(at, 4, {"a:2": range(2_000), "b:1": range(2_000, 4_000)})
    history.gone(at + 1, "a:2", 4)
    history.rebalance(2**53, 100, CauseCode.MEMBER_LEFT, 5, {"b:1": range(4_000)}, "a:2")

    report = reported(tmp_path, history, restarted("other"))

    assert sorted(row["group_id"] for row in report.shown) == ["odd", "other"]
    assert report.png("odd").startswith(b"\x89PNG")
    _print(report)


def test_a_missing_group_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep_only(tmp_path, [])
    commit_tables(tmp_path)

    report = summarise(tmp_path, tmp_path, ["__group_ledger", "__consumer_offsets"], {})
    markup = html(tmp_path, report)
    _print(report)

    nothing = "nothing to report: there is no group in __group_ledger and in __consumer_offsets"
    assert report.notes == [nothing]
    assert nothing in markup
    assert nothing in capsys.readouterr().out


def test_a_full_disk_is_reported_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(spark_tasks.TableFiles, "_write", full)

    (report,) = [
        row
        for batch in analyze(in_batches(facts(restarted("g"))), str(tmp_path), ForensicsThresholds())
        for row in batch.to_pylist()
    ]

    assert (report["errno"], report["problem"], json.loads(report["files"])) == (28, "No space left on device", [])
    assert [*tmp_path.iterdir()] == []
