"""Looks at all groups of Kafka's own coordinator: which of them a gateway holds, and which clients use directly."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from holdfast.broker.structured_log import log_event
from holdfast.broker.util.slices import SliceScheduler
from holdfast.gateway.kafka.errors import KafkaRefused, KafkaUnreachable
from holdfast.gateway.kafka_groups import KafkaGroups, has_members, members_of
from holdfast.gateway.name_claims import INSTANCE_ID, PROTOCOL_TYPE
from holdfast.gateway.upstream import Upstream
from holdfast.wire.apis.describe_groups import DescribedGroup
from holdfast.wire.apis.list_groups import ListedGroup

logger = logging.getLogger(__name__)

_DESCRIBED_AT_ONCE: Final = 100
_CLASSIC: Final = frozenset({"", "classic"})
"""The types of groups that DescribeGroups describes. Old brokers do not list types."""


@dataclass(slots=True)
class Survey:
    held: set[str] = field(default_factory=set)
    """Groups that a gateway holds."""
    used: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Groups of the gateway that have members in Kafka, and these members."""
    is_complete: bool = True
    """All brokers have answered."""


class NameChecks:
    def __init__(self, cluster: Upstream, groups: KafkaGroups, slices: SliceScheduler) -> None:
        self._cluster = cluster
        self._groups = groups
        self._slices = slices

    async def survey(self, is_ours: Callable[[str], bool]) -> Survey:
        """One look at all brokers. `is_ours` says whether a group is on the gateway."""
        found = Survey()
        for node_id in list(self._cluster.brokers.node_ids):
            try:
                await self._survey_broker(node_id, is_ours, found)
            except (KafkaUnreachable, KafkaRefused) as failure:
                found.is_complete = False
                log_event(logger, "groups of a broker not checked", logging.DEBUG, broker=node_id, error=failure)
        return found

    async def orphans(self, is_ours: Callable[[str], bool]) -> list[str]:
        """Groups that have no other member than the gateway's, and are not on the gateway."""
        found: list[str] = []
        for node_id in list(self._cluster.brokers.node_ids):
            try:
                listed = await self._groups.list_at(node_id)
                suspects = [
                    one.group_id
                    async for one in self._slices.iterate(listed)
                    if one.protocol_type == PROTOCOL_TYPE and has_members(one) and not is_ours(one.group_id)
                ]
                for some in _chunks(suspects):
                    described = await self._groups.describe_at(node_id, some)
                    found += [one.group_id for one in described if _is_only_ours(one)]
            except (KafkaUnreachable, KafkaRefused) as failure:
                log_event(logger, "groups of a broker not checked", logging.WARNING, broker=node_id, error=failure)
        return found

    async def _survey_broker(self, node_id: int, is_ours: Callable[[str], bool], found: Survey) -> None:
        suspects: dict[str, ListedGroup] = {}
        async for listed in self._slices.iterate(await self._groups.list_at(node_id)):
            if listed.protocol_type == PROTOCOL_TYPE:
                if has_members(listed):
                    found.held.add(listed.group_id)
            elif has_members(listed) and is_ours(listed.group_id):
                suspects[listed.group_id] = listed
        for some in _chunks(list(suspects)):
            for described in await self._groups.describe_at(node_id, some):
                members = members_of(described)
                if members or suspects[described.group_id].group_type not in _CLASSIC:
                    found.used[described.group_id] = members


def _is_only_ours(group: DescribedGroup) -> bool:
    return len(group.members) == 1 and group.members[0].group_instance_id == INSTANCE_ID


def _chunks(group_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(group_ids), _DESCRIBED_AT_ONCE):
        yield group_ids[start : start + _DESCRIBED_AT_ONCE]
