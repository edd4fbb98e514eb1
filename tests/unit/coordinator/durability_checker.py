"""Reads the group log and checks every answer against it: no answer may contain what is not stored yet.

It reads the records itself, not with the coordinator's `replay`: of the records of a group the last one counts. Some
answers contain what is never stored, in Kafka too: an error, an id that was handed out (KIP-394), and that a member
left. If the broker is killed before the next generation is stored, that member is back, and silent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.coordinator.offsets.commit import Commit
from holdfast.coordinator.offsets.delete import OffsetDeletion
from holdfast.types import TopicPartition
from holdfast.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast.wire.apis.join_group import JoinGroupResponse
from holdfast.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from holdfast.wire.consumer_protocol import EMPTY_ASSIGNMENT
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import (
    GenerationKey,
    GenerationValue,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecordKey,
    GroupRecordValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_record,
)


@dataclass(frozen=True, slots=True)
class Formed:
    """A generation in the group log; without assignments while these are awaited."""

    generation: int
    members: frozenset[str]
    assignments: Mapping[str, bytes] | None


class DurabilityChecker:
    def __init__(self, group_log: Mapping[int, Iterable[tuple[bytes, bytes | None]]]) -> None:
        self.formed: dict[str, Formed] = {}
        self.offsets: dict[str, dict[TopicPartition, OffsetCommitValue]] = {}
        for records in group_log.values():
            for key, value in records:
                decoded = decode_record(key, value)
                assert decoded is not None
                self.read(*decoded)

    # -- reading -------------------------------------------------------------------------------------------------------

    def read(self, key: GroupRecordKey, value: GroupRecordValue | None) -> None:
        if isinstance(key, OffsetCommitKey):
            self._read_offset(key, value)
        elif isinstance(key, GenerationKey):
            self._read_generation(key.group, value)
        elif isinstance(key, GroupMetadataKey):
            self._read_group(key.group, value)

    def _read_offset(self, key: OffsetCommitKey, value: GroupRecordValue | None) -> None:
        of_group = self.offsets.setdefault(key.group, {})
        if isinstance(value, OffsetCommitValue):
            of_group[key.topic, key.partition] = value
        else:
            of_group.pop((key.topic, key.partition), None)

    def _read_generation(self, group: str, value: GroupRecordValue | None) -> None:
        if isinstance(value, GenerationValue):
            members = frozenset(member.member_id for member in value.members)
            self.formed[group] = Formed(value.generation, members, None)
        elif group in self.formed and self.formed[group].assignments is None:
            del self.formed[group]

    def _read_group(self, group: str, value: GroupRecordValue | None) -> None:
        if isinstance(value, GroupMetadataValue):
            assignments = {member.member_id: member.assignment for member in value.members}
            self.formed[group] = Formed(value.generation, frozenset(assignments), assignments)
        else:
            self.formed.pop(group, None)

    # -- checking ------------------------------------------------------------------------------------------------------

    def check_reply(self, group: str, request: object, reply: Any, not_active: frozenset[str] = frozenset()) -> None:
        """What the answer contains is in the group log. Members that are not active are not, and have no assignment."""
        if getattr(reply, "error_code", None) == ErrorCode.NONE and _requester(request, reply) in not_active:
            self._has_nothing(group, request, reply)
        elif isinstance(reply, JoinGroupResponse) and reply.error_code == ErrorCode.NONE:
            self._is_member(group, reply.member_id, reply.generation_id)
        elif isinstance(reply, HeartbeatResponse) and reply.error_code == ErrorCode.NONE:
            assert isinstance(request, HeartbeatRequest)
            self._is_member(group, request.member_id, request.generation_id)
        elif isinstance(reply, SyncGroupResponse) and reply.error_code == ErrorCode.NONE:
            assert isinstance(request, SyncGroupRequest)
            formed = self._is_member(group, request.member_id, request.generation_id)
            assert formed.assignments is not None, "an assignment was handed out before it was stored"
            assert formed.assignments[request.member_id] == reply.assignment
        elif isinstance(request, Commit):
            self._are_committed(group, request, reply)
        elif request is None:
            self._are_gone_or_there(group, reply)

    def _has_nothing(self, group: str, request: object, reply: Any) -> None:
        formed = self.formed.get(group)
        assert formed is not None, "a member got a generation that is not stored"
        reported = reply if isinstance(reply, JoinGroupResponse) else request
        assert getattr(reported, "generation_id", formed.generation) == formed.generation
        if isinstance(reply, SyncGroupResponse):
            assert reply.assignment == EMPTY_ASSIGNMENT

    def _is_member(self, group: str, member_id: str, generation: int) -> Formed:
        formed = self.formed.get(group)
        assert formed is not None, "a generation was acknowledged before it was stored"
        assert formed.generation == generation, "a generation was acknowledged that is not the stored one"
        assert member_id in formed.members, "a member got its id before it was stored"
        return formed

    def _are_committed(self, group: str, request: Commit, reply: Mapping[TopicPartition, ErrorCode]) -> None:
        for key, value in request.offsets.items():
            if reply[key] is ErrorCode.NONE:
                found = self.offsets.get(group, {}).get(key)
                assert found is not None and found.offset == value.offset, (
                    "a commit was acknowledged before it was stored"
                )

    def _are_gone_or_there(self, group: str, reply: Any) -> None:
        """DeleteGroups, OffsetDelete and OffsetFetch."""
        offsets = self.offsets.get(group, {})
        if reply is ErrorCode.NONE:
            assert group not in self.formed and not offsets, "a deletion was acknowledged before it was stored"
        elif isinstance(reply, OffsetDeletion):
            gone = [key for key, code in reply.partitions.items() if code is ErrorCode.NONE]
            assert not offsets.keys() & set(gone), "a deletion was acknowledged before it was stored"
        elif isinstance(reply, tuple) and reply[0] is ErrorCode.NONE:
            reported = {key: value.offset for key, value in reply[1].items()}
            assert reported == {key: value.offset for key, value in offsets.items()}, (
                "offsets were returned that are not stored"
            )


def _requester(request: object, reply: object) -> str | None:
    """The member that the answer is for."""
    if isinstance(reply, JoinGroupResponse):
        return reply.member_id
    return request.member_id if isinstance(request, HeartbeatRequest | SyncGroupRequest) else None
