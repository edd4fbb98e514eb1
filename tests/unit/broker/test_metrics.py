"""What the broker reports through the port for metrics."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

from holdfast.broker.clock import TICK_SECONDS
from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.metrics import NO_METRICS
from holdfast.broker.server import Broker
from holdfast.wire.apis.api_versions import ApiVersionsRequest
from holdfast.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from holdfast.wire.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast.wire.headers import encode_request
from holdfast.wire.records import Record, encode_batch

FEW_PARTITIONS = {"offsets.topic.num.partitions": "2"}


class Recorded:
    is_enabled = True

    def __init__(self) -> None:
        self.requests: list[tuple[str, float, int, int]] = []
        self.events: list[tuple[str, str]] = []
        self.lags: list[float] = []
        self.flushes: list[tuple[int, float]] = []

    def request_served(self, api: str, seconds: float, bytes_in: int, bytes_out: int) -> None:
        self.requests.append((api, seconds, bytes_in, bytes_out))

    def group_event(self, kind: str, cause: str) -> None:
        self.events.append((kind, cause))

    def loop_lagged(self, seconds: float) -> None:
        self.lags.append(seconds)

    def flushed(self, partitions: int, seconds: float) -> None:
        self.flushes.append((partitions, seconds))

    def compacted(self, partition: str, seconds: float) -> None:
        raise AssertionError("nothing is compacted here")


def test_requests_events_flushes_and_the_loop_are_reported(tmp_path: Path) -> None:
    metrics = Recorded()
    batch = encode_batch([Record(0, 1_700_000_000_000, None, b"value")])
    data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, batch)])]
    protocols = [JoinGroupRequestProtocol("range", b"")]
    join = JoinGroupRequest("g", 30_000, 30_000, "", "static", "consumer", protocols)
    frames = [
        encode_request(ApiVersionsRequest(), 0, 1, "test"),
        encode_request(ProduceRequest(acks=-1, topic_data=data), 9, 2, "test"),
        encode_request(join, 5, 3, "test"),
    ]

    async def scenario() -> list[int]:
        config = BrokerConfig.of({"listeners": "PLAINTEXT://127.0.0.1:0", "flush": "always", **FEW_PARTITIONS})
        broker = Broker(config, tmp_path, metrics)
        await broker.start()
        try:
            await broker.topics.create("t", 1, {})
            reader, writer = await asyncio.open_connection(*broker.address)
            sizes = []
            for frame in frames:
                writer.write(frame)
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                await reader.readexactly(size)
                sizes.append(4 + size)
            writer.close()
            await asyncio.sleep(2 * TICK_SECONDS)
            return sizes
        finally:
            await broker.stop()

    sizes = asyncio.run(asyncio.wait_for(scenario(), 30))

    served = [(api, bytes_in, bytes_out) for api, _, bytes_in, bytes_out in metrics.requests]
    names = ("ApiVersions", "Produce", "JoinGroup")
    assert served == [(name, len(frame), size) for name, frame, size in zip(names, frames, sizes, strict=True)]
    assert all(0 < seconds < 30 for _, seconds, _, _ in metrics.requests)
    assert ("rebalance started", "member_joined") in metrics.events
    assert metrics.flushes and all(partitions >= 1 and seconds > 0 for partitions, seconds in metrics.flushes)
    assert metrics.lags


def test_without_metrics_no_request_is_observed() -> None:
    assert not NO_METRICS.is_enabled
