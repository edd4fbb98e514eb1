"""The groups of the gateway: how a group comes from Kafka's own coordinator, and how it goes back.

*Adoption.* The first request that may create a group holds the group's name in Kafka, so that nobody can use the group
there any more, and copies its offsets. A group that has members in Kafka is refused until they stop. Until a group is
adopted, its offsets are read from Kafka. They stay in Kafka, as the last resort of an operator.

*Release.* The offsets are written back before the gateway deletes the group and gives its name up. At each step one of
the two sides has all of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from time import monotonic
from typing import Any, Final

from holdfast.broker.api.services import CommittedOffsets
from holdfast.broker.groups.event_log import EventLog
from holdfast.broker.groups.service import GroupCoordinatorService
from holdfast.broker.structured_log import log_event
from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.events.group_event import EventKind, GroupEvent
from holdfast.gateway.adoption import Adoption
from holdfast.gateway.group_names import PROTOCOL_TYPE, GroupNames, NameInUse
from holdfast.gateway.kafka.cluster import KafkaCluster
from holdfast.gateway.kafka.errors import KafkaRefused, KafkaUnreachable
from holdfast.gateway.kafka_offsets import KafkaOffsets
from holdfast.gateway.release import write_back
from holdfast.wire.apis.delete_groups import DeleteGroupsRequest
from holdfast.wire.apis.describe_groups import DescribedGroup, DescribeGroupsRequest
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import OffsetCommitValue

logger = logging.getLogger(__name__)

GROUP: Final = 0
"""The key type of FindCoordinator."""
DESCRIBE_VERSION: Final = 5
LOGGED_EVERY_SECONDS: Final = 60.0
MAX_ADOPTED: Final = 10_000
READS_AT_ONCE: Final = 16
READ_KEPT_SECONDS: Final = 1.0
"""Long enough for the request that reads the offsets."""
GIVE_UP_ATTEMPTS: Final = 5


class ObservedEventLog:
    """Tells `OwnGroups` of deleted groups, for whatever reason they were deleted."""

    def __init__(self, event_log: EventLog, on_deleted: Callable[[str], None]) -> None:
        self._event_log = event_log
        self._on_deleted = on_deleted

    def write(self, events: list[GroupEvent], now_ms: int) -> None:
        for event in events:
            if event.kind is EventKind.DELETED:
                self._on_deleted(event.group_id)
        self._event_log.write(events, now_ms)


class ReleaseRefused(Exception):
    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class OwnGroups:
    def __init__(
        self,
        groups: GroupCoordinatorService,
        cluster: KafkaCluster,
        names: GroupNames,
        adoption: Adoption,
        offsets: KafkaOffsets,
        event_log: EventLog,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._groups = groups
        self._cluster = cluster
        self._names = names
        self._adoption = adoption
        self._offsets = offsets
        self._event_log = event_log
        self._now = now
        self._adopting: dict[str, asyncio.Task[ErrorCode]] = {}
        self._adopted: set[str] = set()
        """Groups whose offsets were copied, as far as they do not exist yet: a held name alone is not enough."""
        self._releasing: set[str] = set()
        self._logged: dict[str, float] = {}
        self._giving_up: dict[str, asyncio.Task[None]] = {}
        self._read: dict[str, tuple[float, ErrorCode, CommittedOffsets]] = {}
        """Offsets that were just read in Kafka, and when."""

    # -- adoption ------------------------------------------------------------------------------------------------------

    def is_ready(self, group_id: str) -> bool:
        """The group can be served at once."""
        if group_id in self._adopting or group_id in self._releasing or group_id in self._giving_up:
            return False
        groups = self._groups.coordinator.queries
        if groups.has_history(group_id) or not group_id:
            return True
        # A held name alone is not enough, because the offsets may not be copied yet.
        is_adopted = group_id in self._adopted and self._names.is_held(group_id)
        return is_adopted or groups.is_unavailable(group_id)

    async def adopt(self, group_id: str) -> ErrorCode:
        """Makes the group ready. Returns the error for its requests."""
        while not self.is_ready(group_id):
            if group_id in self._releasing:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            giving_up = self._giving_up.get(group_id)
            if giving_up is not None:
                await asyncio.wait((giving_up,))
                continue
            running = self._adopting.get(group_id)
            if running is None:
                running = self._adopting[group_id] = asyncio.create_task(self._adopt(group_id))
                running.add_done_callback(lambda _: self._adopting.pop(group_id, None))
            # Shielded: a client that disconnects must not interrupt the adoption for the others.
            code = await asyncio.shield(running)
            if code is not ErrorCode.NONE:
                return code
        return ErrorCode.NONE

    async def _adopt(self, group_id: str) -> ErrorCode:
        try:
            offsets = await self._adoption.adopt(group_id)
            code = ErrorCode.NONE
            if offsets:
                # One append: after a crash, the group has all of its offsets here or none.
                code = await self._submit(self._groups.coordinator.import_offsets, group_id, offsets)
        except NameInUse as error:
            self._log_seldom(group_id, str(error))
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        except (KafkaRefused, KafkaUnreachable) as error:
            self._log_seldom(group_id, f"group {group_id[:100]!r} cannot be adopted: {error}")
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if code is ErrorCode.NONE:
            self._add_adopted(group_id)
            if offsets:
                log_event(logger, "group adopted from Kafka", group=group_id[:100], offsets=len(offsets))
        return code

    def _add_adopted(self, group_id: str) -> None:
        if len(self._adopted) >= MAX_ADOPTED:
            has_history = self._groups.coordinator.queries.has_history
            self._adopted = {one for one in self._adopted if not has_history(one) and self._names.is_held(one)}
        self._adopted.add(group_id)

    async def _submit(self, command: Callable[..., Any], *arguments: object) -> Any:
        answer = self._groups.submit(command, *arguments)
        return await answer if isinstance(answer, Coroutine) else answer

    # -- groups that are not adopted -----------------------------------------------------------------------------------

    async def committed(self, group_id: str) -> tuple[ErrorCode, CommittedOffsets]:
        """The committed offsets, here or in Kafka."""
        running = self._adopting.get(group_id)
        if running is not None:
            await asyncio.wait((running,))
        if group_id in self._releasing:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, {}
        if self.is_ready(group_id):
            return await self._groups.committed(group_id)
        found = self._read.get(group_id)
        return (await self._read_from_kafka(group_id)) if found is None else found[1:]

    async def read_ahead(self, group_ids: Iterable[str]) -> None:
        """Reads the offsets of these groups in Kafka, so that their topics are known."""
        now = self._now()
        self._read = {name: found for name, found in self._read.items() if found[0] + READ_KEPT_SECONDS > now}
        several = asyncio.Semaphore(READS_AT_ONCE)

        async def read(group_id: str) -> None:
            async with several:
                self._read[group_id] = (self._now(), *await self._read_from_kafka(group_id))

        await asyncio.gather(*(read(name) for name in dict.fromkeys(group_ids) if name not in self._read))

    async def _read_from_kafka(self, group_id: str) -> tuple[ErrorCode, CommittedOffsets]:
        try:
            offsets = await self._offsets.read(group_id)
        except (KafkaRefused, KafkaUnreachable) as error:
            self._log_seldom(group_id, f"the offsets of group {group_id[:100]!r} cannot be read in Kafka: {error}")
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, {}
        return ErrorCode.NONE, {
            where: OffsetCommitValue(one.offset, one.leader_epoch, one.metadata) for where, one in offsets.items()
        }

    def committed_topics(self, group_id: str) -> set[str]:
        found = self._read.get(group_id)
        topics = set() if found is None else {topic for topic, _ in found[2]}
        return topics | self._groups.coordinator.queries.committed_topics(group_id)

    async def describe_in_kafka(self, group_id: str) -> DescribedGroup | None:
        """None if Kafka does not have the group, or only the gateway's member in it.

        Raises KafkaRefused, KafkaUnreachable.
        """
        node_id = await self._cluster.coordinator_of(group_id, GROUP)
        request = DescribeGroupsRequest(groups=[group_id])
        response = await self._cluster.ask(node_id, request, version=DESCRIBE_VERSION)
        described: DescribedGroup = response.groups[0]
        if described.error_code == ErrorCode.NOT_COORDINATOR:
            node_id = await self._cluster.coordinator_of(group_id, GROUP, refresh=True)
            described = (await self._cluster.ask(node_id, request, version=DESCRIBE_VERSION)).groups[0]
        if described.error_code:
            raise KafkaRefused(f"Kafka does not describe group {group_id[:100]!r}", ErrorCode(described.error_code))
        return None if described.group_state == "Dead" or described.protocol_type == PROTOCOL_TYPE else described

    def _log_seldom(self, group_id: str, text: str) -> None:
        """Clients repeat their requests."""
        now = self._now()
        if self._logged.get(group_id, 0.0) + LOGGED_EVERY_SECONDS > now:
            return
        if len(self._logged) > 1_000:
            self._logged.clear()
        self._logged[group_id] = now
        logger.warning("%s", text)

    # -- names ---------------------------------------------------------------------------------------------------------

    def conflict(self, group_id: str, text: str) -> None:
        """A name is in use on both sides. Consumers that go around the gateway read the same partitions."""
        if self._groups.coordinator.queries.is_unavailable(group_id):
            return
        logger.error("%s", text)
        described = self._groups.coordinator.describe_group(group_id, DESCRIBE_VERSION, with_extensions=True)
        extensions = described.extensions
        event = GroupEvent(
            kind=EventKind.NAME_CONFLICT,
            group_id=group_id,
            at_ms=self._groups.now_ms(),
            generation=0 if extensions is None else extensions.generation_id,
            epoch=0 if extensions is None else extensions.assignment_epoch,
            cause=Cause(CauseCode.NAME_USED_IN_KAFKA),
        )
        self._event_log.write([event], self._groups.now_ms())

    def is_own(self, group_id: str) -> bool:
        """Also if nobody knows, because the group is being loaded: its name must not be given up."""
        groups = self._groups.coordinator.queries
        if groups.has_history(group_id) or groups.is_unavailable(group_id):
            return True
        return group_id in self._adopting or groups.has_members(group_id)

    def deleted(self, group_id: str) -> None:
        """The coordinator has deleted the group. Its offsets in Kafka, from before the adoption, must not come back."""
        self._adopted.discard(group_id)
        if group_id in self._releasing or group_id in self._giving_up:
            return
        task = self._giving_up[group_id] = asyncio.create_task(self._give_up(group_id))
        task.add_done_callback(lambda _: self._giving_up.pop(group_id, None))

    async def _give_up(self, group_id: str) -> None:
        for attempt in range(1, GIVE_UP_ATTEMPTS + 1):
            try:
                await self._names.release(group_id)
                code = await self.delete_in_kafka(group_id)
            except (KafkaRefused, KafkaUnreachable) as error:
                problem = str(error)
            else:
                if code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                    return
                problem = code.name
            await asyncio.sleep(attempt)
        logger.warning(
            "the offsets that the deleted group %.100r had in Kafka before its adoption are still there: %s",
            group_id,
            problem,
        )

    async def delete_in_kafka(self, group_id: str) -> ErrorCode:
        """Raises KafkaRefused, KafkaUnreachable."""
        node_id = await self._cluster.coordinator_of(group_id, GROUP)
        response = await self._cluster.ask(node_id, DeleteGroupsRequest(groups_names=[group_id]))
        return ErrorCode(response.results[0].error_code)

    # -- release -------------------------------------------------------------------------------------------------------

    async def release(self, group_id: str) -> int:
        """Returns the number of offsets that Kafka has now. Raises ReleaseRefused, KafkaRefused, KafkaUnreachable."""
        if group_id in self._releasing:
            raise ReleaseRefused(ErrorCode.CONCURRENT_TRANSACTIONS, f"group {group_id!r} is being released")
        described = self._groups.coordinator.describe_group(group_id, DESCRIBE_VERSION)
        if described.error_code:
            raise ReleaseRefused(ErrorCode(described.error_code), f"group {group_id!r} cannot be described now")
        if described.group_state == "Dead":
            raise ReleaseRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"this gateway has no group {group_id!r}")
        if described.group_state != "Empty":
            raise ReleaseRefused(
                ErrorCode.NON_EMPTY_GROUP,
                f"group {group_id!r} has {len(described.members)} members: stop them, then release the group",
            )
        self._releasing.add(group_id)
        try:
            return await self._release(group_id)
        finally:
            self._releasing.discard(group_id)

    async def _release(self, group_id: str) -> int:
        coordinator = self._groups.coordinator
        # Waits for a commit that is being stored. None can follow, because the group is not ready.
        await self._submit(coordinator.delete_offsets, group_id, [])
        code, offsets = await self._submit(coordinator.fetch_offsets, group_id)
        if code:
            raise ReleaseRefused(code, f"the offsets of group {group_id!r} cannot be read now")
        offsets = dict(offsets)
        await self._names.hold(group_id)
        # Also without any offset: those in Kafka, from before the adoption, are removed.
        await write_back(self._cluster, self._names, group_id, offsets)
        code = await self._submit(coordinator.delete_group, group_id)
        if code:
            raise ReleaseRefused(code, f"group {group_id!r} was used meanwhile; release it again")
        await self._names.release(group_id)
        log_event(logger, "group released to Kafka", group=group_id[:100], offsets=len(offsets))
        return len(offsets)

    async def stop(self) -> None:
        tasks = [*self._adopting.values(), *self._giving_up.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
