"""Messages that a coordinator takes seriously: fields filled with what members, tools and liars would send."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from holdfast.wire.consumer_protocol import EMPTY_ASSIGNMENT, Subscription, TopicPartitions, encode_subscription
from holdfast.wire.fields import ZERO_UUID, Spec, specs_of
from tests.fuzz.fuzzed_broker import TOPICS
from tests.support.wire_messages import INTEGER_RANGES, default_of

CLIENT_ID: Final = "c"
INSTANCES: Final = ("A", "B")
GROUPS: Final = ("g", "h")
_SUBSCRIPTIONS: Final = (
    encode_subscription(Subscription(["t"])),
    encode_subscription(Subscription(["t", "u"], owned_partitions=[TopicPartitions("t", [0, 2])], generation_id=1)),
    b"\x00\x01",
    b"",
)
_ASSIGNMENTS: Final = (EMPTY_ASSIGNMENT, bytes.fromhex("0000 00000001 0001 74 00000001 00000000 ffffffff"), b"", b"x")

Picker = Callable[[random.Random], Any]


def _one_of(*values: Any) -> Picker:
    return lambda rng: rng.choice(values)


def _member_id(rng: random.Random) -> str:
    """Ids are given out in order, so these are often somebody's."""
    name = rng.choice((CLIENT_ID, CLIENT_ID, *INSTANCES))
    return rng.choice(("", f"{name}-{rng.randint(1, 9)}", f"{name}-{rng.randint(1, 3)}"))


_GROUP: Final = _one_of(*GROUPS, "g", "g", "g", "", "x" * 300)
_BY_NAME: Final[dict[str, Picker]] = {
    "group_id": _GROUP,
    "groups_names": _GROUP,
    "groups": _GROUP,
    "key": _GROUP,
    "member_id": _member_id,
    "group_instance_id": _one_of(None, None, *INSTANCES),
    "generation_id": _one_of(-1, 0, 1, 1, 2, 2, 3, 4),
    "generation_id_or_member_epoch": _one_of(-1, 0, 1, 1, 2, 2, 3, 4),
    "session_timeout_ms": _one_of(100, 3_000, 3_000, 10_000, 1_800_000, 99),
    "rebalance_timeout_ms": _one_of(0, 1, 1_500, 60_000, 2**31 - 1, -1),
    "protocol_type": _one_of("consumer", "consumer", "consumer", "connect", "", None),
    "protocol_name": _one_of("range", "range", "sticky", None),
    "name": _one_of("range", "sticky", "t", "u", "nowhere"),
    "topics": _one_of("t", "u", "nowhere"),
    "topic_id": _one_of(*(topic_id for topic_id, _ in TOPICS.values()), ZERO_UUID),
    "metadata": lambda rng: rng.choice(_SUBSCRIPTIONS),
    "assignment": lambda rng: rng.choice(_ASSIGNMENTS),
    "partition_index": _one_of(0, 0, 1, 2, 3, -1),
    "partition_indexes": _one_of(0, 0, 1, 2, 3, -1),
    "committed_metadata": _one_of("", None, "m", "m" * 5_000),
    "committed_offset": _one_of(0, 7, -1, 2**63 - 1),
    "commit_timestamp": _one_of(-1, 0, 2**63 - 1),
    "retention_time_ms": _one_of(-1, 0, 1_000, 2**63 - 1),
    "key_type": _one_of(0, 0, 1, 2),
    "reason": _one_of(None, "because"),
}


def message(cls: type[Any], version: int, rng: random.Random) -> Any:
    return cls(*(field(name, spec, version, rng) for name, spec in specs_of(cls)))


def field(name: str, spec: Spec, version: int, rng: random.Random) -> Any:
    """A value for the field, or its default if the version has no place for it."""
    if not spec.present(version) or (spec.tag is not None and rng.random() < 0.5):
        return default_of(spec)
    value = _value(name, spec, version, rng)
    if value is None and not spec.nullable_at(version) and spec.kind != "struct":
        return _filler(spec, rng)
    return value


def _value(name: str, spec: Spec, version: int, rng: random.Random) -> Any:
    if spec.kind == "array":
        assert spec.element is not None
        if spec.nullable_at(version) and rng.random() < 0.3:
            return None
        count = rng.choice((0, 1, 1, 1, 2, 3))
        return [_value(name, spec.element, version, rng) for _ in range(count)]
    if spec.kind == "struct":
        assert spec.struct is not None
        return message(spec.struct, version, rng)
    picker = _BY_NAME.get(name)
    fits = {"string": str, "bytes": bytes, "uuid": bytes}.get(spec.kind, int)
    if picker is not None and rng.random() < 0.95:
        value = picker(rng)
        if value is None or isinstance(value, fits):
            return value
    return _filler(spec, rng)


def _filler(spec: Spec, rng: random.Random) -> Any:
    if spec.kind in INTEGER_RANGES:
        lowest, highest = INTEGER_RANGES[spec.kind]
        return rng.choice((0, 1, lowest, highest, rng.randint(lowest, highest)))
    fillers: dict[str, Sequence[Any]] = {
        "bool": (False, True),
        "float64": (0.0, 1.5),
        "uuid": (ZERO_UUID, bytes(range(16))),
        "string": ("", "s", "é漢😀", "s" * 200),
        "bytes": (b"", b"b", bytes(200)),
        "records": (b"", b"r" * 61),
    }
    return [] if spec.kind == "array" else rng.choice(fillers[spec.kind])
