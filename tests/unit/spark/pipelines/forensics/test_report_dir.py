"""The directory of a report is there whole, or not at all."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from pyarrow import parquet as pq

from holdfast.client.errors import ConfigError
from holdfast.spark.pipelines.forensics.report_dir import REPORT_FILE, ReportUnwritable, checked_path, keep_only, staged
from holdfast.spark.pipelines.forensics.tables import TABLES


def written(out: Path, text: str) -> None:
    with staged(out) as directory:
        (directory / REPORT_FILE).write_text(json.dumps({"forensics": 1, "text": text}))


def logged(out: Path) -> str:
    return str(json.loads((out / REPORT_FILE).read_text())["text"])


def test_a_report_takes_its_name_when_it_is_whole_and_replaces_an_earlier_one(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "report"
    for text in ("first", "second"):
        with staged(out) as directory:
            (directory / REPORT_FILE).write_text(json.dumps({"forensics": 1, "text": text}))
            assert not out.exists() or logged(out) == "first"
        assert logged(out) == text
    assert [path.name for path in out.parent.iterdir()] == ["report"], "nothing is left beside it"


@pytest.mark.parametrize(
    ("error", "said_of_it"),
    [(OSError(errno.ENOSPC, "No space left on device"), "there is no room left for"), (OSError(13, "no"), "no;")],
)
def test_what_fails_leaves_the_earlier_report_as_it_was(tmp_path: Path, error: OSError, said_of_it: str) -> None:
    out = tmp_path / "report"
    written(out, "earlier")

    with pytest.raises(ReportUnwritable, match=said_of_it), staged(out) as directory:
        (directory / REPORT_FILE).write_text("half of")
        raise error

    assert logged(out) == "earlier"
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_a_name_that_cannot_be_taken_leaves_the_earlier_report_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "report"
    written(out, "earlier")
    rename = Path.rename

    def refused(path: Path, target: Path) -> Path:
        if "unfinished" in path.name:
            raise OSError(errno.EIO, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refused)

    with pytest.raises(ReportUnwritable, match="Input/output error"):
        written(out, "later")

    assert logged(out) == "earlier"
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_only_what_is_no_report_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "report"
    assert checked_path(out) == out
    out.mkdir()
    assert checked_path(out) == out
    (out / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match="contains something else"):
        checked_path(out)
    (out / "thesis.txt").unlink()
    written(out, "earlier")
    assert checked_path(out) == out
    with pytest.raises(ConfigError, match="is a file"):
        checked_path(out / REPORT_FILE)
    with pytest.raises(ConfigError, match="that driver and executors can write"):
        checked_path("s3a://bucket/report")


def test_unreported_files_are_not_in_the_tables(tmp_path: Path) -> None:
    for name in ("reported", "of_a_task_that_was_run_again"):
        path = tmp_path / "savings" / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(TABLES["savings"].empty_table(), path)

    keep_only(tmp_path, {"savings/reported.parquet"})

    assert [path.name for path in (tmp_path / "savings").iterdir()] == ["reported.parquet"]
    for name, schema in TABLES.items():
        assert pq.read_table(tmp_path / name).schema.equals(schema), name
