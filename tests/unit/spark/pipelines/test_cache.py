"""Runs on the machine's own disk: what is there whole is not loaded."""

import os
from pathlib import Path

import pytest

from holdfast.spark.pipelines.disk import UNFINISHED
from holdfast.spark.pipelines.enrich.cache import Cache
from holdfast.spark.pipelines.enrich.errors import RunGone
from holdfast.spark.pipelines.enrich.runs import is_whole
from holdfast.spark.pipelines.enrich.version import RunFile
from holdfast.spark.pipelines.errors import Damaged

WHERE = ("orders", 3)
CONTENT = b"a run" * 100
NOW_S = 1_000_000.0


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "shared"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def run() -> RunFile:
    import google_crc32c

    return RunFile("1-x.arrow", 5, len(CONTENT), google_crc32c.value(CONTENT))


def test_a_run_is_loaded_once(tmp_path: Path, source: Path, run: RunFile) -> None:
    cache = Cache(tmp_path / "cache", NOW_S)

    loaded = [cache.load(WHERE, run, source) for _ in range(2)]

    assert loaded == [len(CONTENT), 0]
    assert cache.path(WHERE, run.name).read_bytes() == CONTENT


def test_what_was_made_here_is_there(tmp_path: Path, source: Path, run: RunFile) -> None:
    cache = Cache(tmp_path / "cache", NOW_S)
    cache.keep(WHERE, run.name, CONTENT)

    assert cache.load(WHERE, run, tmp_path / "not needed") == 0


@pytest.mark.parametrize("bad", [CONTENT[:-1], CONTENT[:-1] + b"?"])
def test_one_of_another_life_is_checked_and_a_damaged_one_is_loaded_again(
    tmp_path: Path, source: Path, run: RunFile, bad: bytes
) -> None:
    cache = Cache(tmp_path / "cache", NOW_S)
    cache.load(WHERE, run, source)
    path = cache.path(WHERE, run.name)
    path.write_bytes(bad)
    os.utime(path, (NOW_S - 1, NOW_S - 1))

    assert cache.load(WHERE, run, source) == len(CONTENT)
    assert is_whole(path, run)


def test_one_of_another_life_is_checked_once(
    tmp_path: Path, source: Path, run: RunFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path / "cache", NOW_S)
    cache.load(WHERE, run, source)
    os.utime(cache.path(WHERE, run.name), (NOW_S - 1, NOW_S - 1))
    checked = []

    def count(path: Path, one: RunFile) -> bool:
        checked.append(path)
        return is_whole(path, one)

    monkeypatch.setattr("holdfast.spark.pipelines.enrich.cache.is_whole", count)

    assert [cache.load(WHERE, run, source) for _ in range(3)] == [0, 0, 0]
    assert len(checked) == 1


def test_a_shared_run_that_is_damaged_does_not_come_into_the_cache(tmp_path: Path, source: Path, run: RunFile) -> None:
    source.write_bytes(CONTENT[:50])
    cache = Cache(tmp_path / "cache", NOW_S)

    with pytest.raises(Damaged, match="shared is no run of a state"):
        cache.load(WHERE, run, source)

    assert list((tmp_path / "cache").rglob("*.arrow")) == []
    assert list((tmp_path / "cache").rglob(f"{UNFINISHED}*")) == []


def test_a_shared_run_that_is_gone_is_told(tmp_path: Path, run: RunFile) -> None:
    with pytest.raises(RunGone, match="is gone: the state has moved on"):
        Cache(tmp_path / "cache", NOW_S).load(WHERE, run, tmp_path / "none")


def test_runs_of_versions_that_are_over_are_forgotten(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", NOW_S)
    for name in ("old", "new", f"{UNFINISHED}mine", f"{UNFINISHED}left"):
        cache.keep(WHERE, name, b"x")
    os.utime(cache.path(WHERE, f"{UNFINISHED}left"), (NOW_S - 1, NOW_S - 1))

    cache.forget_others(WHERE, {"new"})
    cache.forget_others(("never", 0), {"seen"})

    assert {path.name for path in cache.path(WHERE, "x").parent.iterdir()} == {"new", f"{UNFINISHED}mine"}
