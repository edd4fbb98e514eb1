"""A disk that fills up while a group is busy: every waiting request is answered, and afterwards the group goes on."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Iterator
from pathlib import Path

import pytest

from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.server import Broker
from holdfast.coordinator.classic.member import Client
from holdfast.coordinator.offsets.commit import Commit, PartitionErrors
from holdfast.log import disk
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import OffsetCommitValue

COUNT = 1_500
"""More than Python's stack is deep."""
ORDERS = ("orders", 0)


@pytest.fixture(autouse=True)
def no_fault_is_left() -> Iterator[None]:
    yield
    disk.fault = None


def full(point: str) -> None:
    if point == "before write":
        raise OSError(errno.ENOSPC, "No space left on device")


async def committed(broker: Broker, offset: int) -> ErrorCode:
    groups = broker.groups
    client = Client("writer", "/127.0.0.1")
    answer: PartitionErrors | Awaitable[PartitionErrors] = groups.submit(
        lambda handle, now_ms: groups.coordinator.commit_offsets(
            Commit("g", -1, "", None, client, handle, {ORDERS: OffsetCommitValue(offset, -1, "", now_ms)}), 9, now_ms
        )
    )
    outcome = await answer if isinstance(answer, Awaitable) else answer
    return outcome[ORDERS]


def test_every_commit_that_waits_is_answered(tmp_path: Path) -> None:
    async def story() -> None:
        settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "flush": "always", "offsets.topic.num.partitions": "1"}
        broker = Broker(BrokerConfig.of(settings), tmp_path / "data")
        await broker.start()
        try:
            # given many commits of one group, all but the first of which wait for the first's flush
            assert await committed(broker, 0) is ErrorCode.NONE
            commits = [asyncio.ensure_future(committed(broker, offset)) for offset in range(COUNT)]
            await asyncio.sleep(0)

            # when the disk is full
            disk.fault = full
            async with asyncio.timeout(20):
                codes = await asyncio.gather(*commits)

            # then all of them are answered, and the next one is stored as soon as there is room
            assert set(codes) == {ErrorCode.NONE, ErrorCode.NOT_COORDINATOR}
            disk.fault = None
            assert await committed(broker, COUNT) is ErrorCode.NONE
        finally:
            disk.fault = None
            await broker.stop()

    asyncio.run(story())
