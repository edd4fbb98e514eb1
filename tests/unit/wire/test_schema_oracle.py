"""Our declarations beside Kafka's: the JSON definitions that kafka-python carries, and what Kafka 4.3.1 advertises."""

from __future__ import annotations

import re
import typing
from typing import Any

import pytest
from kafka.protocol.schemas import load_json

from holdfast.wire.fields import FIXED_FORMATS, LATEST, ZERO_UUID, Spec, specs_of
from holdfast.wire.message import APIS, Part, Records
from tests.support.wire_messages import (
    FIRST_OF_OURS,
    MESSAGES,
    case_id,
    default_of,
    is_nullable,
    reachable_structs,
    struct_inside,
)

ADVERTISED = {
    "Produce": (0, 13),
    "Fetch": (4, 18),
    "ListOffsets": (1, 11),
    "Metadata": (0, 13),
    "OffsetCommit": (2, 10),
    "OffsetFetch": (1, 10),
    "FindCoordinator": (0, 6),
    "JoinGroup": (0, 9),
    "Heartbeat": (0, 4),
    "LeaveGroup": (0, 5),
    "SyncGroup": (0, 5),
    "DescribeGroups": (0, 6),
    "ListGroups": (0, 5),
    "SaslHandshake": (0, 1),
    "ApiVersions": (0, 4),
    "CreateTopics": (2, 7),
    "DeleteTopics": (1, 6),
    "DeleteRecords": (0, 2),
    "InitProducerId": (0, 5),
    "OffsetForLeaderEpoch": (2, 4),
    "DescribeAcls": (1, 3),
    "CreateAcls": (1, 3),
    "DeleteAcls": (1, 3),
    "DescribeConfigs": (1, 4),
    "AlterConfigs": (0, 2),
    "SaslAuthenticate": (0, 2),
    "CreatePartitions": (0, 3),
    "DeleteGroups": (0, 2),
    "IncrementalAlterConfigs": (0, 1),
    "OffsetDelete": (0, 0),
    "DescribeClientQuotas": (0, 1),
    "DescribeUserScramCredentials": (0, 0),
    "AlterUserScramCredentials": (0, 0),
    "DescribeCluster": (0, 2),
    "ConsumerGroupHeartbeat": (0, 1),
    "DescribeTopicPartitions": (0, 0),
    "DescribeLogDirs": (1, 5),
    "ElectLeaders": (0, 2),
    "AlterPartitionReassignments": (0, 1),
    "ListPartitionReassignments": (0, 0),
    "DescribeQuorum": (0, 2),
    "UpdateFeatures": (0, 2),
    "DescribeProducers": (0, 0),
    "ListConfigResources": (0, 1),
    "AddOffsetsToTxn": (0, 4),
    "TxnOffsetCommit": (0, 5),
}
"""The version ranges in an ApiVersions response of Apache Kafka 4.3.1."""

NOT_IN_KAFKA_PYTHON = {"ConsumerGroupHeartbeat"}
"""kafka-python carries no definition of it; `test_messages` compares it with kio's."""

DEFINED = [
    message for message in MESSAGES if message.API.name not in NOT_IN_KAFKA_PYTHON and message.API.key < FIRST_OF_OURS
]

OTHER_VERSIONS = {
    "Produce": ((3, 13), "Kafka advertises 0 to 2 for librdkafka's sake and refuses them, and so do we"),
    "OffsetCommit": ((0, 10), "librdkafka looks for v1; v0 is what the oldest clients send"),
    "OffsetFetch": ((0, 10), "v0 has the layout of v1 and costs nothing"),
}
"""Where our definitions cover other versions than Kafka advertises, and why."""

NOT_DECLARED = {
    ("ListOffsetsRequest", "MaxNumOffsets"): "in v0 only, which Kafka 4 removed",
    ("ListOffsetsResponse", "OldStyleOffsets"): "in v0 only, which Kafka 4 removed",
    ("DescribeConfigsResponse", "IsDefault"): "in v0 only, which Kafka 4 removed",
    ("InitProducerIdRequest", "Enable2Pc"): "in v6 only, which is not stable and not advertised",
    ("InitProducerIdRequest", "KeepPreparedTxn"): "in v6 only, which is not stable and not advertised",
    ("InitProducerIdResponse", "OngoingTxnProducerId"): "in v6 only, which is not stable and not advertised",
    ("InitProducerIdResponse", "OngoingTxnProducerEpoch"): "in v6 only, which is not stable and not advertised",
}
"""Kafka's fields that we leave out, and why."""


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def bounds(versions: str) -> tuple[int, int]:
    """Kafka's notation: `3+`, `0-9`, `1`, `none`."""
    if versions == "none":
        return LATEST, LATEST
    first, separator, last = versions.rstrip("+").partition("-")
    if versions.endswith("+"):
        return int(first), LATEST
    return int(first), int(last) if separator else int(first)


def covers(versions: str, version: int) -> bool:
    first, last = bounds(versions)
    return first <= version <= last


def kafka_default(field: dict[str, Any], kind: str) -> Any:
    """Kafka's default of a field. A struct's is a struct of defaults, which is never written; ours is None."""
    written = field.get("default", "")
    if kind in ("struct", "records") or written == "null":
        return None
    if kind == "bool":
        return str(written).lower() == "true"
    if kind in ("string", "bytes", "array", "uuid"):
        return {"string": "", "bytes": b"", "array": [], "uuid": ZERO_UUID}[kind]
    return int(str(written or 0), 0)


def kafka_kind(written: str) -> str:
    if written.startswith("[]"):
        return "array"
    return "struct" if written[0].isupper() else written


# -- versions ---------------------------------------------------------------------------------------------------------


def test_every_api_that_a_broker_or_gateway_serves_is_declared_and_no_other() -> None:
    assert {api.name for api in APIS.values() if api.key < FIRST_OF_OURS} == set(ADVERTISED)


@pytest.mark.parametrize("name", ADVERTISED)
def test_the_definitions_cover_what_kafka_advertises(name: str) -> None:
    api = next(api for api in APIS.values() if api.name == name)
    expected, _ = OTHER_VERSIONS.get(name, (ADVERTISED[name], ""))

    assert api.versions == expected
    assert name not in OTHER_VERSIONS or expected != ADVERTISED[name], "a listed deviation that is none"


@pytest.mark.parametrize("cls", DEFINED, ids=case_id)
def test_key_and_first_flexible_version_are_kafkas(cls: Any) -> None:
    definition = load_json(cls.__name__)

    assert (cls.API.key, cls.API.flexible) == (definition["apiKey"], bounds(definition["flexibleVersions"])[0])


# -- fields -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", DEFINED, ids=case_id)
def test_fields_are_kafkas(cls: Any) -> None:
    versions = range(cls.VERSIONS[0], cls.VERSIONS[1] + 1)
    left_out = compare_struct(cls.__name__, cls, load_json(cls.__name__)["fields"], versions)

    assert left_out == {field for message, field in NOT_DECLARED if message == cls.__name__}


def kafkas_fields(cls: type[Any]) -> list[tuple[str, Spec]]:
    return [(name, spec) for name, spec in specs_of(cls) if spec.tag is None or spec.tag < FIRST_OF_OURS]


def compare_struct(
    message: str, cls: type[Any], fields: list[dict[str, Any]], versions: typing.Iterable[int]
) -> set[str]:
    """Asserts that order, names and contents agree in these versions; returns the names of Kafka's fields left out."""
    left_out = {field["name"] for field in fields if (message, field["name"]) in NOT_DECLARED}
    kept = [field for field in fields if field["name"] not in left_out]
    declared = kafkas_fields(cls)
    assert [name for name, _ in declared] == [snake_case(field["name"]) for field in kept]
    for field in fields:
        if field["name"] in left_out:
            assert not any(covers(field["versions"], version) for version in versions), "left out, but on the wire"
    for (name, spec), field in zip(declared, kept, strict=True):
        compare_field(f"{message}: {cls.__name__}.{name}", spec, field, versions)
        inner = struct_inside(spec)
        if inner is not None:
            present = [version for version in versions if spec.present(version)]
            left_out |= compare_struct(message, inner, field["fields"], present)
    return left_out


def compare_field(where: str, spec: Spec, field: dict[str, Any], versions: typing.Iterable[int]) -> None:
    assert spec.kind == kafka_kind(field["type"]), where
    if spec.element is not None:
        assert spec.element.kind == kafka_kind(field["type"][2:]), where
    assert spec.tag == field.get("tag"), where
    assert default_of(spec) == kafka_default(field, spec.kind), where
    present = [version for version in versions if covers(field["versions"], version)]
    assert [version for version in versions if spec.present(version)] == present, where
    nullable = [version for version in present if covers(field.get("nullableVersions", "none"), version)]
    assert [version for version in present if spec.nullable_at(version)] == nullable, where
    if field.get("tag") is not None:
        assert [version for version in present if covers(field["taggedVersions"], version)] == present, where
    if present != list(versions):  # where a field is always there, whether it may be dropped says nothing
        assert spec.ignorable == field.get("ignorable", False), where


# -- annotations ------------------------------------------------------------------------------------------------------


def annotation_of(spec: Spec) -> Any:
    if spec.kind == "array":
        assert spec.element is not None
        plain: Any = list[annotation_of(spec.element)]  # type: ignore[misc]  # built at run time
    elif spec.kind in FIXED_FORMATS:
        plain = {"bool": bool, "float64": float, "uuid": bytes}.get(spec.kind, int)
    else:
        plain = spec.struct or {"string": str, "bytes": bytes, "records": Records}[spec.kind]
    is_element = spec.kind == "struct" and spec.tag is None and spec.nullable is None
    return plain | None if is_nullable(spec) and not is_element else plain


@pytest.mark.parametrize("cls", MESSAGES, ids=case_id)
def test_annotations_say_what_is_declared(cls: Any) -> None:
    for struct in reachable_structs(cls):
        hints = typing.get_type_hints(struct)
        for name, spec in specs_of(struct):
            expected = {annotation_of(spec)}
            if spec.kind == "records":
                expected.add(Part | None)  # what goes out may also be a region of a file
            assert hints[name] in expected, f"{struct.__name__}.{name}"
