"""Runs on the machine's own disk: what is there whole is not loaded."""

import os
from pathlib import Path

import pytest

from holdfast.spark.pipelines.aggregate.errors import RunMissing
from holdfast.spark.pipelines.aggregate.run_cache import RunCache
from holdfast.spark.pipelines.aggregate.run_files import StoredRun, is_whole
from holdfast.spark.pipelines.aggregate.version import RunFile
from holdfast.spark.pipelines.durable_files import UNFINISHED
from holdfast.spark.pipelines.errors import Damaged
from holdfast.spark.pipelines.shared_files import LocalFiles

TOPIC_PARTITION = ("orders", 3)
CONTENT = b"a run" * 100
NOW_S = 1_000_000.0


@pytest.fixture
def source(tmp_path: Path) -> StoredRun:
    (tmp_path / "shared").write_bytes(CONTENT)
    return StoredRun(LocalFiles(tmp_path), "shared")


@pytest.fixture
def run() -> RunFile:
    import google_crc32c

    return RunFile("1-x.arrow", 5, len(CONTENT), google_crc32c.value(CONTENT))


def test_a_run_is_loaded_once(tmp_path: Path, source: StoredRun, run: RunFile) -> None:
    cache = RunCache(tmp_path / "cache", NOW_S)

    loaded = [cache.load(TOPIC_PARTITION, run, source) for _ in range(2)]

    assert loaded == [len(CONTENT), 0]
    assert cache.path(TOPIC_PARTITION, run.name).read_bytes() == CONTENT


def test_what_was_made_here_is_there(tmp_path: Path, source: StoredRun, run: RunFile) -> None:
    cache = RunCache(tmp_path / "cache", NOW_S)
    cache.put(TOPIC_PARTITION, run.name, CONTENT)

    assert cache.load(TOPIC_PARTITION, run, StoredRun(LocalFiles(tmp_path), "not needed")) == 0


@pytest.mark.parametrize("bad", [CONTENT[:-1], CONTENT[:-1] + b"?"])
def test_a_file_of_an_earlier_process_is_checked_and_loaded_again_if_damaged(
    tmp_path: Path, source: StoredRun, run: RunFile, bad: bytes
) -> None:
    cache = RunCache(tmp_path / "cache", NOW_S)
    cache.load(TOPIC_PARTITION, run, source)
    path = cache.path(TOPIC_PARTITION, run.name)
    path.write_bytes(bad)
    os.utime(path, (NOW_S - 1, NOW_S - 1))

    assert cache.load(TOPIC_PARTITION, run, source) == len(CONTENT)
    assert is_whole(path, run)


def test_a_file_of_an_earlier_process_is_checked_once(
    tmp_path: Path, source: StoredRun, run: RunFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = RunCache(tmp_path / "cache", NOW_S)
    cache.load(TOPIC_PARTITION, run, source)
    os.utime(cache.path(TOPIC_PARTITION, run.name), (NOW_S - 1, NOW_S - 1))
    checked = []

    def count(path: Path, one: RunFile) -> bool:
        checked.append(path)
        return is_whole(path, one)

    monkeypatch.setattr("holdfast.spark.pipelines.aggregate.run_cache.is_whole", count)

    assert [cache.load(TOPIC_PARTITION, run, source) for _ in range(3)] == [0, 0, 0]
    assert len(checked) == 1


def test_a_shared_run_that_is_damaged_does_not_come_into_the_cache(
    tmp_path: Path, source: StoredRun, run: RunFile
) -> None:
    (tmp_path / "shared").write_bytes(CONTENT[:50])
    cache = RunCache(tmp_path / "cache", NOW_S)

    with pytest.raises(Damaged, match="shared is no run of a state"):
        cache.load(TOPIC_PARTITION, run, source)

    assert list((tmp_path / "cache").rglob("*.arrow")) == []
    assert list((tmp_path / "cache").rglob(f"{UNFINISHED}*")) == []


def test_a_missing_run_is_reported(tmp_path: Path, run: RunFile) -> None:
    with pytest.raises(RunMissing, match="does not exist: it was superseded"):
        RunCache(tmp_path / "cache", NOW_S).load(TOPIC_PARTITION, run, StoredRun(LocalFiles(tmp_path), "none"))


def test_runs_of_versions_that_are_over_are_forgotten(tmp_path: Path) -> None:
    cache = RunCache(tmp_path / "cache", NOW_S)
    for name in ("old", "new", f"{UNFINISHED}mine", f"{UNFINISHED}left"):
        cache.put(TOPIC_PARTITION, name, b"x")
    os.utime(cache.path(TOPIC_PARTITION, f"{UNFINISHED}left"), (NOW_S - 1, NOW_S - 1))

    cache.evict_others(TOPIC_PARTITION, {"new"})
    cache.evict_others(("never", 0), {"seen"})

    assert {path.name for path in cache.path(TOPIC_PARTITION, "x").parent.iterdir()} == {"new", f"{UNFINISHED}mine"}
