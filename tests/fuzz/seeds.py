"""Where the corpus begins: messages and coordinator runs from our own encoders."""

from __future__ import annotations

import random
from struct import Struct
from typing import Any, Final

from holdfast.wire.apis.delete_groups import DeleteGroupsRequest
from holdfast.wire.apis.describe_groups import DescribeGroupsRequest
from holdfast.wire.apis.heartbeat import HeartbeatRequest
from holdfast.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from holdfast.wire.apis.leave_group import LeaveGroupRequest, MemberIdentity
from holdfast.wire.apis.list_groups import ListGroupsRequest
from holdfast.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from holdfast.wire.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from holdfast.wire.compression import Codec, compress
from holdfast.wire.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    encode_assignment,
    encode_subscription,
)
from holdfast.wire.group_records import (
    GenerationKey,
    GenerationMember,
    GenerationValue,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecordKey,
    GroupRecordValue,
    HighestGenerationKey,
    HighestGenerationValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_key,
    encode_value,
)
from holdfast.wire.headers import response_header
from holdfast.wire.message import APIS, encode
from holdfast.wire.records import Record, encode_batch
from tests.fuzz.coordinator_runs import SERVED, Act, Step, pack
from tests.fuzz.decoding import Kind
from tests.fuzz.mutation import request_frame
from tests.support.wire_messages import random_message

SMALL: Final = 200
_RESPONSE: Final = Struct(">hh")
_INT16: Final = Struct(">H")


# -- decoding ----------------------------------------------------------------------------------------------------------


def for_decoding() -> list[bytes]:
    return [*_messages(), *_consumer_protocol(), *_group_records(), *_batches(), *_compressed()]


def _messages() -> list[bytes]:
    """Every request and response in every version."""
    rng = random.Random("messages")
    found: list[bytes] = []
    for api in APIS.values():
        for version in range(api.versions[0], api.versions[1] + 1):
            asked = request_frame(_small(api.request, version, rng), version)
            found.append(bytes([Kind.REQUEST]) + asked)
            answered = response_header(1, api.key, version) + encode(_small(api.response, version, rng), version)
            found.append(bytes([Kind.RESPONSE]) + _RESPONSE.pack(api.key, version) + answered)
    return found


def _small(cls: type[Any], version: int, rng: random.Random) -> Any:
    made = [random_message(cls, version, rng) for _ in range(20)]
    fitting = [message for message in made if len(encode(message, version)) <= SMALL]
    return max(fitting, key=lambda message: len(encode(message, version)), default=cls())


def _consumer_protocol() -> list[bytes]:
    owned = [TopicPartitions("t", [0, 1]), TopicPartitions("u", [])]
    subscription = Subscription(["t", "u"], b"user", owned, 7, "rack")
    assignment = Assignment(owned, None)
    return [
        *(bytes([Kind.SUBSCRIPTION]) + encode_subscription(subscription, version) for version in range(4)),
        *(bytes([Kind.ASSIGNMENT]) + encode_assignment(assignment, version) for version in range(4)),
    ]


def _group_records() -> list[bytes]:
    offset = OffsetCommitValue(7, 0, "m", 1_000)
    member = MemberMetadata("c-1", "A", "c", "/192.0.2.7", 1_500, 3_000, b"s", b"a")
    group = GroupMetadataValue("consumer", 3, "range", "c-1", 1_000, [member])
    generation = GenerationValue(
        "consumer", 3, "range", "c-1", 1_000, [GenerationMember("c-1", None, "c", "/192.0.2.7", 1_500, 3_000, b"s")]
    )
    records: list[tuple[GroupRecordKey, GroupRecordValue, range]] = [
        (OffsetCommitKey("g", "t", 0), offset, range(5)),
        (GroupMetadataKey("g"), group, range(5)),
        (GenerationKey("g"), generation, range(1)),
        (HighestGenerationKey(), HighestGenerationValue(9), range(1)),
    ]
    found: list[bytes] = []
    for key, value, versions in records:
        head = encode_key(key)
        found.append(bytes([Kind.GROUP_RECORD]) + _INT16.pack(len(head) | 0x8000) + head)
        for version in versions:
            body = encode_value(value, version)
            found.append(bytes([Kind.GROUP_RECORD]) + _INT16.pack(len(head)) + head + body)
    return found


def _batches() -> list[bytes]:
    records = [
        Record(0, 1_000, b"k", b"v"),
        Record(1, 1_001, None, None, (("h", b"x"), ("i", None))),
        Record(2, 999, b"", b"w" * 80),
    ]
    found: list[bytes] = []
    for codec in Codec:
        batch = encode_batch(records, compression=codec, producer_id=5, producer_epoch=0, base_sequence=0)
        found += [bytes([kind]) + batch for kind in (Kind.BATCH, Kind.SEALED_BATCH)]
        bomb = encode_batch([Record(0, 0, b"k", bytes(400_000))], compression=codec)
        found.append(bytes([Kind.SEALED_BATCH]) + bomb[:4_000])
    found.append(bytes([Kind.BATCH]) + encode_batch(records, control=True, transactional=True, log_append_time=True))
    return found


def _compressed() -> list[bytes]:
    found: list[bytes] = []
    for codec in Codec:
        for data in (b"", b"abc" * 30, bytes(1_000_000)):
            found.append(bytes([Kind.COMPRESSED, codec]) + compress(codec, data)[:4_000])
    return found


# -- coordinator runs --------------------------------------------------------------------------------------------------


def for_coordinator_runs() -> list[bytes]:
    return [
        pack(steps)
        for steps in (
            _dynamic_pair(),
            _static_pair(),
            _disk_trouble(),
            _killed_in_sync(),
            _offsets_without_members(),
            _every_request(),
            _loose_bytes(),
        )
    ]


def _requests(message: Any, version: int, peer: int = 0) -> Step:
    return Step(Act.REQUEST, peer, request_frame(message, version))


def _time(index: int) -> Step:
    return Step(Act.TIME, index)


_DELAY: Final = 5
_SECOND: Final = 6
_SESSION: Final = 7
_TWO_DAYS: Final = 12


def _join(peer: int, member_id: str = "", instance: str | None = None, version: int = 9) -> Step:
    offered = [JoinGroupRequestProtocol("range", encode_subscription(Subscription(["t"])))]
    request = JoinGroupRequest("g", 3_000, 1_500 if version else -1, member_id, instance, "consumer", offered)
    return _requests(request, version, peer)


def _sync(
    peer: int, member_id: str, given: tuple[str, ...] = (), *, generation: int = 1, instance: str | None = None
) -> Step:
    assigned = [SyncGroupRequestAssignment(member, b"share") for member in given]
    request = SyncGroupRequest("g", generation, member_id, instance, "consumer", "range", assigned)
    return _requests(request, 5, peer)


def _beat(peer: int, member_id: str, *, generation: int = 1, instance: str | None = None) -> Step:
    return _requests(HeartbeatRequest("g", generation, member_id, instance), 4, peer)


def _commit(peer: int, member_id: str = "", generation: int = -1) -> Step:
    topics = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 7)])]
    return _requests(OffsetCommitRequest("g", generation, member_id, topics=topics), 9, peer)


def _dynamic_pair() -> list[Step]:
    """The third and fourth join get ids 3 and 4 in vain: each join draws one."""
    return [
        _join(0),
        _join(1),
        _join(0, "c-1"),
        _join(1, "c-2"),
        _time(_DELAY),
        _time(_DELAY),
        _sync(1, "c-2"),
        _sync(0, "c-1", ("c-1", "c-2")),
        _beat(0, "c-1"),
        _commit(1, "c-2", 1),
        _requests(LeaveGroupRequest("g", members=[MemberIdentity("c-2")]), 5, 1),
        _beat(0, "c-1"),
        _join(0, "c-1"),
        _sync(0, "c-1", ("c-1",), generation=2),
        _time(_SESSION),
    ]


def _static_pair() -> list[Step]:
    return [
        _join(0, instance="A"),
        _join(1, instance="B", version=5),
        _time(_DELAY),
        _time(_DELAY),
        _sync(0, "A-1", ("A-1", "B-2"), instance="A"),
        _sync(1, "B-2", instance="B"),
        Step(Act.DISCONNECT, 0),
        _join(2, instance="A"),
        _beat(0, "A-1", instance="A"),
        _beat(2, "A-3", instance="A"),
        Step(Act.TOPIC_GROWN, 0),
        _requests(LeaveGroupRequest("g", members=[MemberIdentity("", "A"), MemberIdentity("", "B")]), 4, 3),
        _requests(DeleteGroupsRequest(["g"]), 2, 3),
    ]


def _disk_trouble() -> list[Step]:
    fails, slow, release, failing = Step(Act.DISK, 1), Step(Act.DISK, 2), Step(Act.DISK, 3), Step(Act.DISK, 4)
    return [
        _join(0, instance="A"),
        fails,
        _time(_DELAY),
        _join(0, "A-1", "A"),
        _time(_SECOND),
        slow,
        _join(0, "A-1", "A"),
        _sync(0, "A-1", ("A-1",), instance="A"),
        _beat(1, "A-1", instance="A"),
        _join(2, instance="B"),
        release,
        _time(_SECOND),
        failing,
        _commit(3),
        Step(Act.DISK, 0),
    ]


def _killed_in_sync() -> list[Step]:
    return [
        _join(0, instance="A"),
        _join(1, instance="B"),
        _time(_DELAY),
        _time(_DELAY),
        Step(Act.KILL, 3),
        _join(0, "A-1", "A"),
        Step(Act.LOAD),
        Step(Act.TOPIC_DELETED, 0),
        Step(Act.LOAD),
        _sync(1, "B-2", instance="B"),
        _sync(0, "A-1", ("A-1", "B-2"), instance="A"),
        Step(Act.KILL, 0),
        _beat(0, "A-1", instance="A"),
        _commit(0, "A-1", 1),
        _requests(DescribeGroupsRequest(["g"], True), 5),
        Step(Act.KILL, 1),
    ]


def _offsets_without_members() -> list[Step]:
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
    return [
        _commit(0),
        _requests(everything, 9),
        Step(Act.SWEEP),
        _time(_TWO_DAYS),
        Step(Act.SWEEP),
        _requests(everything, 8),
    ]


def _every_request() -> list[Step]:
    rng = random.Random("requests")
    return [
        _requests(_small(api.request, api.versions[1], rng), api.versions[1], peer=number % 5)
        for number, api in enumerate(SERVED)
    ]


def _loose_bytes() -> list[Step]:
    frame = request_frame(ListGroupsRequest(), 5)
    framed = len(frame).to_bytes(4) + frame
    return [
        Step(Act.BYTES, 0, framed[:5]),
        Step(Act.BYTES, 0, framed[5:] + framed + framed[:1]),
        Step(Act.BYTES, 1, (40_000).to_bytes(4) + bytes(30)),
        Step(Act.BYTES, 2, b"\xff\xff\xff\xff"),
        _time(8),
    ]
