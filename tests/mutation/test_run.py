"""Seeded bugs: every bug still fits the source, and one that no test finds is named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.mutation import run as module
from tests.mutation.run import ROOT, Bug, Detection, DoesNotApply, Edit, all_bugs, main, run_bug

OF_THE_ISSUE = {
    "answer_before_append",
    "forgotten_pending_sync",
    "missing_fence",
    "lost_timer_restart",
    "wrong_awaiting_count",
    "generation_reuse",
}
TIMERS_ONLY = "tests/unit/coordinator/test_timers.py"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of what the bugs are put into."""
    for part in ("holdfast/coordinator", "holdfast/client", "holdfast/membership"):
        shutil.copytree(ROOT / "src" / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.parametrize("bug", all_bugs(), ids=lambda bug: bug.name)
def test_every_seeded_bug_fits_the_source(bug: Bug, source: Path) -> None:
    bug.apply(source)

    for edit in bug.edits:
        changed = (source / edit.file).read_text()
        assert changed != (ROOT / "src" / edit.file).read_text()
        compile(changed, edit.file, "exec")
    assert bug.what.endswith(".")


def test_the_six_of_the_beginning_are_there() -> None:
    assert {bug.name for bug in all_bugs()} >= OF_THE_ISSUE


@pytest.mark.parametrize("before", ["this is nowhere", "return"], ids=["nowhere", "often"])
def test_an_edit_that_does_not_fit_exactly_once_is_an_error(before: str, source: Path) -> None:
    bug = Bug("faded", "It is no longer there.", (Edit("holdfast/coordinator/classic/members.py", before, ""),))

    with pytest.raises(
        DoesNotApply, match=r"^seeded bug faded: holdfast/coordinator/classic/members\.py has this \d+ times"
    ):
        bug.apply(source)


def test_a_bug_that_the_suite_does_not_look_at_is_not_found() -> None:
    (bug,) = [bug for bug in all_bugs() if bug.name == "fence_missing_in_commit"]

    catch = run_bug(bug, ROOT / "src", suite=TIMERS_ONLY)

    assert not catch.is_found
    assert str(catch) == "NOT FOUND fence_missing_in_commit: nobody"


def test_control_a_bug_that_it_does_look_at_is_found() -> None:
    cancelled = Edit("holdfast/coordinator/runtime/timers.py", "            self.action = None\n", "")
    bug = Bug("uncancelled", "What is cancelled fires.", (cancelled,))

    catch = run_bug(bug, ROOT / "src", suite=TIMERS_ONLY)

    assert catch.is_found
    assert catch.finder.startswith("test_timers.py::test_what_is_cancelled")


@pytest.mark.parametrize(("is_found", "code", "said"), [(True, 0, "found"), (False, 1, "MISSED faded")])
def test_missed_bugs_are_named(
    is_found: bool, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bug = Bug("faded", "It is no longer there.", ())
    monkeypatch.setattr(module, "all_bugs", lambda: [bug])
    monkeypatch.setattr(module, "run_all", lambda *_args, **_more: [Detection(bug, is_found, "somebody")])

    assert main([]) == code
    assert said in capsys.readouterr().out


def test_a_name_that_is_no_bug() -> None:
    assert main(["no such bug"]) == 2
