"""Results name the commit that they were taken at, so that those of another source can be retaken."""

import subprocess
from pathlib import Path

import pytest

from benchmarks import machine


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One commit with a source file and a page."""
    monkeypatch.setattr(machine, "REPOSITORY", tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "broker.py").write_text("x = 1\n")
    (tmp_path / "page.md").write_text("one\n")
    git(tmp_path, "init", "--quiet")
    save(tmp_path)
    return tmp_path


def git(directory: Path, *arguments: str) -> None:
    author = ["-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *author, *arguments], cwd=directory, check=True, timeout=30, capture_output=True)


def save(directory: Path) -> None:
    git(directory, "add", "--all")
    git(directory, "commit", "--quiet", "--message", "change")


def test_a_commit_that_changes_only_pages_has_the_same_source(repository: Path) -> None:
    taken_at = machine.commit()
    (repository / "page.md").write_text("two\n")
    save(repository)

    assert machine.commit() != taken_at
    assert machine.has_same_source(taken_at)


def test_a_changed_source_is_another_one_before_and_after_its_commit(repository: Path) -> None:
    taken_at = machine.commit()
    (repository / "src" / "broker.py").write_text("x = 2\n")

    assert machine.commit() == taken_at + machine.CHANGED
    assert not machine.has_same_source(taken_at)
    save(repository)
    assert not machine.has_same_source(taken_at)


@pytest.mark.parametrize("taken_at", ["", "unknown", f"1234567{machine.CHANGED}", "1234567"])
def test_a_commit_that_is_not_known_has_another_source(repository: Path, taken_at: str) -> None:
    assert not machine.has_same_source(taken_at)


def test_outside_a_repository_the_commit_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "REPOSITORY", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))

    assert machine.commit() == "unknown"
