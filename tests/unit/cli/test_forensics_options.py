"""`holdfast pipeline forensics`: mistakes are reported before Spark is started; what came out, in a table."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.errors import CommandFailed
from holdfast.cli.main import build_parser, main
from holdfast.cli.pipeline.forensics import _draw, _print, _thresholds
from holdfast.spark.pipelines.forensics.report import Report
from holdfast.spark.pipelines.forensics.tables import TABLES
from holdfast.spark.pipelines.forensics.thresholds import ForensicsThresholds

FORENSICS = ["pipeline", "forensics", "--out", "report"]
BROKER = ["--bootstrap-server", "127.0.0.1:9092"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([], "holdfast pipeline forensics: no broker is named"),
        ([*BROKER, "--out", "s3a://bucket/report"], "a directory that driver and executors can write"),
        ([*BROKER, "--since", "tomorrow"], "neither a duration such as 2h nor a time"),
        ([*BROKER, "--since", "1h", "--until", "2h"], "ends before it begins"),
        ([*BROKER, "--source", "zookeeper"], "invalid choice: 'zookeeper'"),
        ([*BROKER, "--flap-times", "0"], "0"),
        ([*BROKER, "--picture", "owners.svg"], "give a file name that ends in .png"),
        ([*BROKER, "--picture", "no/such/directory/owners.png"], "a directory that exists and is writable"),
    ],
)
def test_a_command_that_cannot_be_is_refused_in_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, more: list[str], said: str
) -> None:
    monkeypatch.delenv("HOLDFAST_BOOTSTRAP_SERVERS", raising=False)
    try:
        code = main([*FORENSICS, *more])
    except SystemExit as ended:
        code = int(ended.code or 0)

    output = capsys.readouterr()
    assert (code, output.out, output.err.count("\n")) == (2, "", 1), output
    assert said in output.err


def test_a_directory_with_something_else_in_it_is_left_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")

    assert main([*FORENSICS, *BROKER, "--out", str(tmp_path)]) == 2

    assert "contains something else than a report" in capsys.readouterr().err


def test_a_picture_without_matplotlib_is_refused_before_spark_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("holdfast.extras.find_spec", lambda name: None if name == "matplotlib" else find_spec(name))

    assert main([*FORENSICS, *BROKER, "--picture", str(tmp_path / "owners.png")]) == 1

    assert capsys.readouterr().err == (
        "holdfast pipeline forensics: --picture needs matplotlib: pip install 'holdfast[plot]'\n"
    )


def test_the_picture_shows_the_group_with_the_highest_cost(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Report, "png", lambda _, group_id: f"picture of {group_id}".encode())
    report = Report(tmp_path, ("__group_ledger",), 2, {}, [row("worst"), row("better")], {})

    _draw(report, tmp_path / "owners.png", is_printed=True)
    _draw(Report(tmp_path, ("__group_ledger",), 0, {}, [], {}), tmp_path / "nothing.png", is_printed=True)
    with pytest.raises(CommandFailed, match=r"could not be written to .*; the report is there"):
        _draw(report, tmp_path, is_printed=True)

    assert (tmp_path / "owners.png").read_bytes() == b"picture of worst"
    assert not (tmp_path / "nothing.png").exists()
    assert capsys.readouterr().out == f"the timeline of worst is in {tmp_path / 'owners.png'}\n"


def test_options_become_rules() -> None:
    words = ["--flap-times", "5", "--flap-within", "60", "--scale-up-within", "2.5", "--takeover-ms", "700"]

    rules = _thresholds(build_parser("pipeline").parse_args([*FORENSICS, *words, "--until", "1970-01-01T00:00:01Z"]))

    assert rules == ForensicsThresholds(
        until_ms=1_000, flap_times=5, flap_within_ms=60_000, scale_up_within_ms=2_500, takeover_ms=700
    )
    assert _thresholds(build_parser("pipeline").parse_args(FORENSICS)) == ForensicsThresholds(), (
        "the defaults are the library's"
    )


def row(group_id: str, **figures: Any) -> dict[str, Any]:
    zeros: dict[str, Any] = {**dict.fromkeys(TABLES["summary"].names, 0), "causes": {}, "is_lower_bound": False}
    return {**zeros, "group_id": group_id, **figures}


def test_the_table_names_groups_figures_and_causes(capsys: pytest.CaptureFixture[str]) -> None:
    shown = [
        row("orders", rebalances=3, unassigned_ms=4_500, causes={"member_left": 2, "member_joined": 1}),
        row("on\x1b[2Jkafka", rebalances=1, unassigned_ms=7, is_lower_bound=True),
    ]
    _print(Report(Path("report"), ("__group_ledger",), 30, {}, shown, {}, ["not read: 3 × key version 3"]))

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["GROUP", "REBALANCES", "UNASSIGNED-MS"]
    assert lines[1].split()[:3] == ["orders", "3", "4500"]
    assert lines[2].split()[:3] == ["on\\x1b[2Jkafka", "1", "≥7"]
    assert lines[3] == "orders: 2 × a member left, 1 × a new member joined"
    assert lines[-3:] == [
        "and 10 more groups",
        "not read: 3 × key version 3",
        "tables, timeline.html and report.json are in report",
    ]
