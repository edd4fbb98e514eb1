"""Encoding and decoding of important messages, compared with the two public codecs that support the same versions."""

from __future__ import annotations

import io
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import kafka.protocol.consumer
import kafka.protocol.metadata
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from benchmarks.measure import HOLDFAST, Plan, Result, Row, alternating
from benchmarks.tables import figure, paragraph, table, times
from holdfast.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast.wire.apis.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from holdfast.wire.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from holdfast.wire.message import decode, encode

NAME: Final = "codec"
KIO: Final = "kio"
KAFKA_PYTHON: Final = "kafka-python"
_NAMES: Final = {HOLDFAST: "Holdfast", KIO: "kio", KAFKA_PYTHON: "kafka-python"}
_REPEATS: Final = 5
_SUBSCRIPTION: Final = bytes(64)


@dataclass(frozen=True)
class Sample:
    label: str
    message: Any
    version: int


@dataclass(frozen=True)
class Codec:
    """One message in one library, ready to be timed."""

    encode: Callable[[], bytes]
    decode: Callable[[], Any]


def samples() -> list[Sample]:
    heartbeat = HeartbeatRequest("orders", 7, "consumer-1", "instance-1")
    return [
        Sample("HeartbeatRequest v4", heartbeat, 4),
        Sample("HeartbeatResponse v4", HeartbeatResponse(throttle_time_ms=0, error_code=0), 4),
        Sample("JoinGroupRequest v9", _join(), 9),
        Sample("JoinGroupResponse v9, 500 members", _joined(members=500), 9),
        Sample("OffsetCommitRequest v8, 100 partitions", _commit(partitions=100), 8),
        Sample("MetadataResponse v12, 100 topics of 10 partitions", _metadata(topics=100, partitions=10), 12),
    ]


def _join() -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="orders",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
        member_id="consumer-1",
        group_instance_id="instance-1",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name, _SUBSCRIPTION) for name in ("range", "sticky")],
        reason="a rolling restart",
    )


def _joined(members: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        throttle_time_ms=0,
        error_code=0,
        generation_id=7,
        protocol_type="consumer",
        protocol_name="range",
        leader="consumer-1",
        skip_assignment=False,
        member_id="consumer-1",
        members=[
            JoinGroupResponseMember(f"consumer-{index}-{index:032x}", f"instance-{index}", _SUBSCRIPTION)
            for index in range(members)
        ],
    )


def _commit(partitions: int) -> OffsetCommitRequest:
    commits = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=1 << 40, committed_metadata="")
        for index in range(partitions)
    ]
    return OffsetCommitRequest(
        group_id="orders",
        generation_id_or_member_epoch=7,
        member_id="consumer-1",
        group_instance_id="instance-1",
        topics=[OffsetCommitRequestTopic(name="orders", partitions=commits)],
    )


def _metadata(topics: int, partitions: int) -> MetadataResponse:
    of_each = [
        MetadataResponsePartition(
            error_code=0, partition_index=index, leader_id=1, replica_nodes=[1], isr_nodes=[1], offline_replicas=[]
        )
        for index in range(partitions)
    ]
    return MetadataResponse(
        throttle_time_ms=0,
        brokers=[MetadataResponseBroker(1, "127.0.0.1", 9092)],
        cluster_id="a-cluster",
        controller_id=1,
        topics=[
            MetadataResponseTopic(0, f"topic-{index}", index.to_bytes(16, "big"), False, of_each)
            for index in range(1, topics + 1)
        ],
    )


def run(plan: Plan) -> Result:
    seconds = 0.02 if plan.quick else 0.15
    rows: list[Row] = []
    prepared = {sample.label: codecs_of(sample) for sample in samples()}
    for number in range(1, plan.rounds + 1):
        for label, codecs in prepared.items():
            for name in alternating(codecs, number):
                with plan.attempt(label, name, number):
                    figures = {
                        "encode_us": _best_us(codecs[name].encode, seconds),
                        "decode_us": _best_us(codecs[name].decode, seconds),
                    }
                    rows.append(Row(label, name, number, figures))
    return Result(NAME, {"messages": list(prepared), "repeats": _REPEATS}, rows)


def codecs_of(sample: Sample) -> dict[str, Codec]:
    """The same message in each library; all must write the same bytes."""
    encoded = encode(sample.message, sample.version)
    codecs = {
        HOLDFAST: Codec(
            lambda: encode(sample.message, sample.version),
            lambda: decode(type(sample.message), sample.version, encoded),
        ),
        KIO: _kio(sample, encoded),
        KAFKA_PYTHON: _kafka_python(sample, encoded),
    }
    for name, codec in codecs.items():
        if codec.encode() != encoded:
            raise RuntimeError(f"{name} writes {sample.label} differently")
    return codecs


def _kio(sample: Sample, encoded: bytes) -> Codec:
    api = sample.message.API
    load = load_request_schema if type(sample.message) is api.request else load_response_schema
    schema = load(api.key, sample.version)
    read, write = entity_reader(schema), entity_writer(schema)
    understood, _ = read(encoded, 0)

    def write_bytes() -> bytes:
        buffer = io.BytesIO()
        write(buffer, understood)
        return buffer.getvalue()

    return Codec(write_bytes, lambda: read(encoded, 0))


def _kafka_python(sample: Sample, encoded: bytes) -> Codec:
    name = type(sample.message).__name__
    homes = (kafka.protocol.consumer, kafka.protocol.metadata)
    theirs = next(getattr(home, name) for home in homes if hasattr(home, name))
    understood = theirs.decode(encoded, version=sample.version)
    understood._header = None  # decoded objects lack an attribute that encode() reads
    return Codec(
        lambda: bytes(understood.encode(version=sample.version)),
        lambda: theirs.decode(encoded, version=sample.version),
    )


def _best_us(action: Callable[[], Any], seconds: float) -> float:
    """The best of a few repetitions, because disturbances only make it slower."""
    timer = timeit.Timer(action)
    calls = 1
    while (once := timer.timeit(calls)) < seconds / 10:
        calls *= 4
    calls = max(1, round(calls * seconds / once / _REPEATS))
    return min(timer.repeat(_REPEATS, calls)) / calls * 1e6


def section(result: Result) -> list[str]:
    text = (
        "One process encodes and decodes each message. The figures are in µs per message. The figure of a round is the"
        f" best of {result.settings['repeats']} repetitions. All three libraries write the same bytes. A ratio is"
        " Holdfast's time divided by the time of the other library. With a ratio below 1, Holdfast is faster. kio"
        " decodes with compiled code. Holdfast and kafka-python are pure Python. One thread computes without waiting."
        " The CPU time of a million messages in seconds is therefore the same number as the time of one message in µs."
    )
    lines = [paragraph(text), ""]
    for what in ("encode", "decode"):
        rows = []
        for label in result.settings["messages"]:
            values = [figure(result.values(label, name, f"{what}_us")) for name in _NAMES]
            ratios = [times(result.ratio(label, f"{what}_us", over=name)) for name in (KIO, KAFKA_PYTHON)]
            rows.append((label, *values, *ratios))
        head = (f"{what}, µs", *_NAMES.values(), "Holdfast ÷ kio", "Holdfast ÷ kafka-python")
        lines += [*table(head, rows)]
    return lines
