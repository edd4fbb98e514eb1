"""`holdfast pipeline`: mistakes in a command are reported before Spark is started."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.cli.main import build_parser, main
from holdfast.cli.pipeline.query_options import source_options, trigger
from tests.support.s3_emulator import s3_emulator
from tests.unit.spark.pipelines.aggregate_harness import MINUTE_US, WHOLE, WINDOWED, AggregateHarness, Record
from tests.unit.spark.pipelines.places import Place, s3_place

AGGREGATE = ["pipeline", "aggregate", "--topic", "orders", "--group", "totals", "--path", "totals"]
LAND = ["pipeline", "land", "--topic", "orders", "--group", "lake", "--path", "lake"]
BROKER = ["--bootstrap-server", "127.0.0.1:9092"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([], "holdfast pipeline land: no broker is named"),
        ([*BROKER, "--path", "gs://bucket/lake"], "a table needs a directory that driver and executors share, or S3"),
        ([*BROKER, "--storage", "AWS_REGION=eu-1"], "storage options are for object stores"),
        ([*BROKER, "--option", "subscribes=x"], "did you mean 'subscribe'"),
        ([*BROKER, "--option", "kafka.session.timeout=6s"], "session.timeout"),
        ([*BROKER, "--every", "0"], "'0' is not a number of seconds"),
        ([*BROKER, "--conf", "x"], "'x' is not of the form NAME=VALUE"),
    ],
)
def test_a_command_that_cannot_be_is_refused_in_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, more: list[str], said: str
) -> None:
    monkeypatch.delenv("HOLDFAST_BOOTSTRAP_SERVERS", raising=False)
    try:
        code = main([*LAND, *more])
    except SystemExit as ended:
        code = int(ended.code or 0)

    output = capsys.readouterr()
    assert (code, output.out, output.err.count("\n")) == (2, "", 1), output
    assert said in output.err


def test_options_become_those_of_the_source() -> None:
    words = [
        *LAND,
        *BROKER,
        "--topic",
        "a,b",
        "--instance-id",
        "i",
        "--from-latest",
        "--max-offsets",
        "7",
        "--every",
        "5",
    ]
    options = build_parser("pipeline").parse_args([*words, "--option", "failOnDataLoss=false"])

    assert source_options(options) == {
        "kafka.client.id": "holdfast-cli",
        "kafka.bootstrap.servers": "127.0.0.1:9092",
        "kafka.group.id": "lake",
        "kafka.group.instance.id": "i",
        "subscribe": "orders,a,b",
        "startingOffsets": "latest",
        "maxOffsetsPerTrigger": 7,
        "failOnDataLoss": "false",
    }
    assert trigger(options) == {"processingTime": "5 seconds"}


def test_once_is_what_the_topics_hold_now() -> None:
    assert trigger(build_parser("pipeline").parse_args([*LAND, "--once"])) == {"availableNow": True}
    assert trigger(build_parser("pipeline").parse_args(LAND)) == {}


def test_a_date_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["pipeline", "land-compact", "--path", "lake", "--before", "yesterday"])

    assert "'yesterday' is not a date like 2026-11-16" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--path", "gs://bucket/totals"], "a state needs a directory that driver and executors share, or S3"),
        (["--path", "s3://bucket/totals", "--storage", "AWS_REGOIN=eu-1"], "did you mean AWS_REGION?"),
        (["--window", "soon"], "window 'soon' is no length of time like '30 seconds'"),
        (["--keep-windows", "7 days"], "keep_windows '7 days': there are no windows"),
    ],
)
def test_a_state_that_cannot_be_is_refused_before_spark_is_started(
    capsys: pytest.CaptureFixture[str], more: list[str], said: str
) -> None:
    assert main([*AGGREGATE, *BROKER, *more]) == 2

    assert said in capsys.readouterr().err


def filled(path: Path, place: Place | None = None) -> None:
    world = AggregateHarness(path, WINDOWED, place=place)
    world.produce(0, [Record(b"anna", 5, 0, b"five"), Record(b"bert", None, 0, None), Record(b"anna", 6, 1, b"six")])
    world.produce(1, [Record(b"anna", 7, 0, b"x" * 100), Record(None, 1, 0, b"\xff")])
    world.member("one").apply((0, 0, 3), (1, 0, 2))


def test_totals_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(tmp_path)

    assert main(["pipeline", "aggregate-show", "--path", str(tmp_path / "state"), "--limit", "3"]) == 0

    head, first, *rest = capsys.readouterr().out.splitlines()
    assert " ".join(head.split()) == "TOPIC PARTITION KEY WINDOW COUNT SUM LAST LAST-TIMESTAMP LAST-OFFSET"
    moments = "1970-01-01T00:00:00+00:00", "1970-01-01T00:00:00.000001+00:00"
    assert " ".join(first.split()) == f"payments 0 anna {moments[0]} 2 11 six {moments[1]} 2"
    assert len(rest) == 2


def test_totals_in_s3_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with s3_emulator() as s3:
        place = s3_place(s3)
        filled(tmp_path, place)
        storage = [f"--storage={name}={value}" for name, value in s3.options.items()]
        show = ["pipeline", "aggregate-show", *storage, "--json", "--path"]

        assert main([*show, str(place.location)]) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert {(row["partition"], row["key"]): row["count"] for row in rows} == {
            (0, "anna"): 2,
            (0, "bert"): 1,
            (1, "anna"): 1,
            (1, None): 1,
        }
        assert main([*show, f"{place.location}/none"]) == 2
        assert "there is no such state" in capsys.readouterr().err
        assert main([*show, "s3://no-such-bucket/state"]) == 1
        said = "s3://no-such-bucket/state cannot be read: the bucket no-such-bucket does not exist (NoSuchBucket)\n"
        assert capsys.readouterr().err.endswith(said)


def test_totals_of_a_key_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(tmp_path)

    assert main(["pipeline", "aggregate-show", "--path", str(tmp_path / "state"), "--key", "anna", "--json"]) == 0

    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["partition"], row["key"], row["count"], row["sum"], row["last"]) for row in rows] == [
        (0, "anna", 2, 11, "six"),
        (1, "anna", 1, 7, "x" * 100),
    ]


def test_times_that_no_date_can_name_are_shown_as_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # given a record that was stamped in microseconds where milliseconds belong, and one from before the calendar
    late_us, early_us = 1_790_000_000_000_000_000, -62_135_596_800_001_000
    world = AggregateHarness(tmp_path, WINDOWED)
    world.produce(0, [Record(b"late", 1, late_us), Record(b"early", 1, early_us), Record(b"fine", 1, 0)])
    world.member("one", keep_us=10 * MINUTE_US).apply((0, 1, 2))
    world.member("one").apply((0, 2, 3))
    world.produce(1, world.topic[0])
    world.member("one").apply((1, 0, 3))

    # when
    show = ["pipeline", "aggregate-show", "--path", str(tmp_path / "state")]
    assert main([*show, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert main(show) == 0
    table = capsys.readouterr().out

    # then
    assert {row["key"]: row["last_timestamp"] for row in rows if row["partition"] == 1} == {
        "late": "1790000000000000 ms since 1970",
        "early": "-62135596800001 ms since 1970",
        "fine": "1970-01-01T00:00:00+00:00",
    }
    assert "1790000000000000 ms since 1970" in table
    assert table.splitlines()[-1] == "dropped: windows before -62135597460000 ms since 1970"


def test_a_text_that_is_no_utf8_hides_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # given strings as Spark's CAST(key AS STRING) makes them of any bytes
    world = AggregateHarness(tmp_path, replace(WHOLE, key_type="string", last_type="string"))
    records = [(b"anna", b"\xfe"), (b"\xff", b"one"), (b"\xfe", b"other"), (None, None)]
    world.produce(0, [Record(key, value=value) for key, value in records])
    world.member("one").apply((0, 0, 4))

    # when
    assert main(["pipeline", "aggregate-show", "--path", str(tmp_path / "state"), "--json"]) == 0

    # then
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["key"]: row["last"] for row in rows} == {
        "anna": "\\xfe",
        "\\xff": "one",
        "\\xfe": "other",
        None: None,
    }


def test_dropped_rows_are_shown_with_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # given a state of which old windows were dropped
    filled(tmp_path)
    world = AggregateHarness(tmp_path, WINDOWED)
    world.produce(0, [*[Record(b"x")] * 3, Record(b"anna", 1, 100 * MINUTE_US)])
    world.produce(1, [*[Record(b"x")] * 2, Record(b"anna", 1, 40 * MINUTE_US)])
    show = ["pipeline", "aggregate-show", "--path", str(tmp_path / "state")]
    assert main(show) == 0
    before = capsys.readouterr().out

    # when
    world.member("one", keep_us=10 * MINUTE_US).apply((0, 3, 4), (1, 2, 3))
    assert main(show) == 0
    after = capsys.readouterr().out

    # then
    assert "dropped" not in before
    result = "dropped: windows before 1970-01-01T00:30:00+00:00 to 1970-01-01T01:30:00+00:00, by partition"
    assert after.splitlines()[-1] == result
    assert len(after.splitlines()) == 4, "a head, a window of each partition, and this"


@pytest.mark.parametrize(
    ("more", "said"),
    [([], "there is no such state"), (["--topic", "a"], "has no topic 'a'; it has payments")],
)
def test_a_missing_state_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], said: str
) -> None:
    if more:
        filled(tmp_path)

    assert main(["pipeline", "aggregate-show", "--path", str(tmp_path / "state"), *more]) == 2

    assert said in capsys.readouterr().err
