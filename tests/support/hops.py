"""How far a request travels within Holdfast: function calls, modules touched, hops between modules.

A hop is a call from one module of Holdfast into another; calls through the standard library (an event loop's handle, a
partial) count as calls by the module behind them. The rules:

- Only functions that stand in a source file count. Generated code (a dataclass's `__init__`, the message codecs) has no
  file that a reader would open.
- A generator or coroutine counts when it is called; when it is resumed, the same call goes on. So work in slices costs
  one call, however often it yields.
- Comprehensions are part of their function, as they are from Python 3.12 on.
- The way begins where the network calls: with bytes that arrived, or with an answer that was waited for. Timers, and
  work that is put off until the reply has left (events of groups), are not the request's.

    python -m tests.support.hops                  # the figures
    python -m tests.support.hops --calls Heartbeat  # and each call of one of them
"""

from __future__ import annotations

import argparse
import asyncio
import struct
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final, Self

import holdfast
from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.server import Broker
from holdfast.coordinator.events.group_event import LEDGER_TOPIC
from holdfast.wire.apis.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from holdfast.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from holdfast.wire.apis.join_group import JOIN_GROUP, JoinGroupRequest, JoinGroupRequestProtocol
from holdfast.wire.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from holdfast.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.wire.apis.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast.wire.apis.sync_group import SYNC_GROUP, SyncGroupRequest, SyncGroupRequestAssignment
from holdfast.wire.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    encode_assignment,
    encode_subscription,
)
from holdfast.wire.headers import decode_response, encode_request
from holdfast.wire.message import Api
from holdfast.wire.records import Record, encode_batch

_ROOT: Final = str(Path(holdfast.__file__).parent)
_NETWORK: Final = "holdfast.broker.network."
_INLINED: Final = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>"})
_TIMES: Final = 3
"""Each request is measured this often; noise can only add calls."""


@dataclass(frozen=True, slots=True)
class Call:
    module: str
    function: str
    caller: str | None
    """The module that called it; None for the event loop."""
    depth: int


@dataclass(frozen=True, slots=True, order=True)
class Way:
    """The way of one request through Holdfast."""

    hops: int
    modules: int
    calls: int


@dataclass(slots=True)
class Tracer:
    """Records the calls of this thread while it is entered."""

    calls: list[Call] = field(default_factory=list)
    _seen: dict[int, FrameType] = field(default_factory=dict)
    """The frames themselves are kept, so that no id is used twice."""

    def __enter__(self) -> Self:
        sys.setprofile(self._on_event)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        sys.setprofile(None)
        self._seen.clear()

    @property
    def way(self) -> Way:
        hops = sum(call.caller is not None and call.caller != call.module for call in self.calls)
        return Way(hops, len({call.module for call in self.calls}), len(self.calls))

    def _on_event(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call" or not _is_ours(frame) or frame.f_code.co_name in _INLINED or id(frame) in self._seen:
            return
        self._seen[id(frame)] = frame
        callers = _callers(frame)
        if _module([frame, *callers][-1]).startswith(_NETWORK):
            ours = [one for one in callers if one.f_code.co_name not in _INLINED]
            caller = _module(ours[0]) if ours else None
            self.calls.append(Call(_module(frame), frame.f_code.co_qualname, caller, len(ours)))


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_ROOT)


def _module(frame: FrameType) -> str:
    return str(frame.f_globals["__name__"])


def _callers(frame: FrameType) -> list[FrameType]:
    """Those within Holdfast, from the nearest to the one that the event loop called."""
    found: list[FrameType] = []
    back = frame.f_back
    while back is not None:
        if _is_ours(back):
            found.append(back)
        back = back.f_back
    return found


# -- the requests ------------------------------------------------------------------------------------------------------


class _Client:
    """Speaks to the broker on the broker's own event loop; its own work on a request is done before the tracing."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._sent = 0

    async def ask(self, api: Api, request: Any, version: int, tracer: Tracer | None = None) -> Any:
        self._sent += 1
        data = encode_request(request, version, self._sent, "client-1")
        if tracer is None:
            frame = await self._exchange(data)
        else:
            with tracer:
                frame = await self._exchange(data)
        return decode_response(api, version, frame)[1]

    async def _exchange(self, data: bytes) -> bytes:
        self._writer.write(data)
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(size)


@asynccontextmanager
async def _running(directory: Path) -> AsyncIterator[_Client]:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "offsets.topic.num.partitions": "1"}
    broker = Broker(BrokerConfig.of(settings), directory)
    await broker.start()
    try:
        yield _Client(*await asyncio.open_connection(*broker.address))
    finally:
        await broker.stop()


REQUESTS: Final = ("JoinGroup", "SyncGroup", "OffsetCommit", "Produce", "Heartbeat")


async def _one_round(client: _Client, group: str) -> dict[str, Tracer]:
    """A new static member of a new group joins and leads, commits, produces and heartbeats."""
    traced = {name: Tracer() for name in REQUESTS}
    protocols = [JoinGroupRequestProtocol("range", encode_subscription(Subscription(["orders"])))]
    join = JoinGroupRequest(group, 30_000, 30_000, "", "instance-1", "consumer", protocols)
    joined = await client.ask(JOIN_GROUP, join, 9, traced["JoinGroup"])
    assert joined.error_code == 0
    me = (group, joined.generation_id, joined.member_id, "instance-1")
    assignment = encode_assignment(Assignment([TopicPartitions("orders", [0, 1])]))
    assignments = [SyncGroupRequestAssignment(joined.member_id, assignment)]
    synced = await client.ask(
        SYNC_GROUP, SyncGroupRequest(*me, "consumer", "range", assignments), 5, traced["SyncGroup"]
    )
    assert synced.error_code == 0
    offsets = [OffsetCommitRequestTopic("orders", partitions=[OffsetCommitRequestPartition(0, 5)])]
    commit = OffsetCommitRequest(*me, topics=offsets)
    await client.ask(OFFSET_COMMIT, commit, 8)  # the first one of a partition makes the record's key, which is kept
    committed = await client.ask(OFFSET_COMMIT, commit, 8, traced["OffsetCommit"])
    assert committed.topics[0].partitions[0].error_code == 0
    batch = encode_batch([Record(0, 1_700_000_000_000, None, b"value")])
    data = [TopicProduceData("orders", partition_data=[PartitionProduceData(0, batch)])]
    produced = await client.ask(PRODUCE, ProduceRequest(acks=-1, topic_data=data), 9, traced["Produce"])
    assert produced.responses[0].partition_responses[0].error_code == 0
    assert (await client.ask(HEARTBEAT, HeartbeatRequest(*me), 4, traced["Heartbeat"])).error_code == 0
    return traced


async def _until_there(client: _Client, topic: str) -> None:
    """Until then events wait for their topic, and are no part of their request."""
    request = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    for _ in range(500):
        found = await client.ask(METADATA, request, 12)
        if found.topics[0].error_code == 0:
            return
        await asyncio.sleep(0.01)
    raise TimeoutError(f"{topic} is not there")


async def _measure(directory: Path) -> dict[str, Tracer]:
    async with _running(directory) as client:
        topic = CreateTopicsRequest([CreatableTopic("orders", 2, 1)], 10_000)
        await client.ask(CREATE_TOPICS, topic, 7)
        await _one_round(client, "first")  # it makes codecs and the internal topics
        await _until_there(client, LEDGER_TOPIC)
        await _one_round(client, "second")
        rounds = [await _one_round(client, f"group-{number}") for number in range(_TIMES)]
    return {name: min((one[name] for one in rounds), key=lambda tracer: tracer.way) for name in REQUESTS}


def measure(directory: Path) -> dict[str, Tracer]:
    """The calls of each request, handled by a broker in this process with its data in this directory."""
    return asyncio.run(_measure(directory))


def main() -> None:
    parser = argparse.ArgumentParser(description="calls, modules and hops of one request")
    parser.add_argument("--calls", choices=REQUESTS, help="print each call of this request")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = measure(Path(directory))
    for call in found[options.calls].calls if options.calls else ():
        mark = "" if call.caller in (call.module, None) else "→ "
        print(f"{'  ' * call.depth}{mark}{call.module.removeprefix('holdfast.')} {call.function}")
    print(f"{'request':14}{'calls':>6}{'modules':>9}{'hops':>6}")
    for name, tracer in found.items():
        print(f"{name:14}{tracer.way.calls:6}{tracer.way.modules:9}{tracer.way.hops:6}")


if __name__ == "__main__":
    main()
