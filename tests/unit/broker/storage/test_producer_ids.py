"""Producer ids: each is handed out once, whatever happens to the broker."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.broker.storage.producer_ids import BLOCK_SIZE, PRODUCER_IDS_FILE, ProducerIds
from holdfast.log import DataDirectoryError, StorageError, disk


def take(ids: ProducerIds, count: int) -> list[int]:
    async def all_at_once() -> list[int]:
        return await asyncio.gather(*(ids.next() for _ in range(count)))

    return asyncio.run(all_at_once())


def test_ids_count_up_from_zero(tmp_path: Path) -> None:
    assert take(ProducerIds(tmp_path), 5) == [0, 1, 2, 3, 4]


def test_ids_continue_behind_the_block_after_a_restart(tmp_path: Path) -> None:
    take(ProducerIds(tmp_path), 3)

    assert take(ProducerIds(tmp_path), 2) == [BLOCK_SIZE, BLOCK_SIZE + 1]


def test_requests_that_arrive_together_use_one_reservation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    renames = 0

    def count(point: str) -> None:
        nonlocal renames
        renames += point == "renamed"

    monkeypatch.setattr(disk, "fault", count)

    ids = take(ProducerIds(tmp_path), 2 * BLOCK_SIZE + 1)

    assert (sorted(ids), renames) == (list(range(2 * BLOCK_SIZE + 1)), 3)


@pytest.mark.parametrize(
    "point", ["before create", "half written", "before fsync", "before rename", "before directory sync"]
)
def test_without_a_reservation_there_is_no_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    def full(reached: str) -> None:
        if reached == point:
            raise OSError(28, "No space left on device")

    ids = ProducerIds(tmp_path)
    monkeypatch.setattr(disk, "fault", full)
    with pytest.raises(StorageError, match="No space left on device"):
        take(ids, 1)

    monkeypatch.setattr(disk, "fault", None)
    assert take(ids, 1) == [0]


def test_a_client_that_disconnects_loses_no_reservation(tmp_path: Path) -> None:
    async def leave_and_stay() -> int:
        ids = ProducerIds(tmp_path)
        leaving, staying = asyncio.create_task(ids.next()), asyncio.create_task(ids.next())
        await asyncio.sleep(0)
        leaving.cancel()
        return await asyncio.wait_for(staying, 10)

    assert asyncio.run(leave_and_stay()) == 0


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"reserved_until": -1}', '{"reserved_until": "7"}', "\udcff"])
def test_a_damaged_file_stops_the_broker_rather_than_reuse_ids(tmp_path: Path, content: str) -> None:
    (tmp_path / PRODUCER_IDS_FILE).write_bytes(content.encode(errors="surrogateescape"))

    with pytest.raises(DataDirectoryError, match=f"{PRODUCER_IDS_FILE} is damaged"):
        ProducerIds(tmp_path)


VICTIM = """
import asyncio, os, signal, sys
from pathlib import Path
from holdfast.broker.storage.producer_ids import ProducerIds
from holdfast.log import disk

def fault(point):
    if point == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    ids = ProducerIds(Path(sys.argv[1]))
    print(await ids.next(), flush=True)
    disk.fault = fault
    while True:
        print(await ids.next(), flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    "point",
    ["before create", "half written", "written", "before fsync", "before rename", "renamed", "before directory sync"],
)
def test_no_id_comes_twice_wherever_the_broker_is_killed(tmp_path: Path, point: str) -> None:
    command = [sys.executable, "-c", VICTIM, str(tmp_path), point]
    killed = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, env={**os.environ})

    assert killed.returncode == -signal.SIGKILL
    handed_out = {int(line) for line in killed.stdout.split()}
    assert len(handed_out) == BLOCK_SIZE
    assert take(ProducerIds(tmp_path), 1)[0] > max(handed_out)
