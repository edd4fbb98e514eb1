"""The groups of the gateway: how a group comes from Kafka's own coordinator, and how it goes back.

*Adoption.* The first request of a group that the gateway does not know holds the group's name in Kafka, so that nobody
can use the group there any more, and copies its offsets. A group that has members in Kafka is refused until they stop.

*Release.* The offsets are written back before the gateway deletes the group and gives its name up. At each step one of
the two sides has all of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, Final

from holdfast.broker.groups.event_log import EventLog
from holdfast.broker.groups.service import GroupCoordinatorService
from holdfast.broker.structured_log import log_event
from holdfast.coordinator.classic.member import Client
from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.events.group_event import EventKind, GroupEvent
from holdfast.coordinator.offsets.commit import Commit
from holdfast.gateway.adoption import Adoption
from holdfast.gateway.group_names import PROTOCOL_TYPE, GroupNames, NameInUse
from holdfast.gateway.kafka.cluster import KafkaCluster
from holdfast.gateway.kafka.errors import KafkaRefused, KafkaUnreachable
from holdfast.gateway.release import write_back
from holdfast.wire.apis.delete_groups import DeleteGroupsRequest
from holdfast.wire.apis.describe_groups import DescribedGroup, DescribeGroupsRequest
from holdfast.wire.error_codes import ErrorCode

logger = logging.getLogger(__name__)

GROUP: Final = 0
"""The key type of FindCoordinator."""
COMMIT_VERSION: Final = 9
DESCRIBE_VERSION: Final = 5
LOGGED_EVERY_SECONDS: Final = 60.0
_GATEWAY: Final = Client("holdfast-gateway", "/", None, "holdfast")


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
        event_log: EventLog,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._groups = groups
        self._cluster = cluster
        self._names = names
        self._adoption = adoption
        self._event_log = event_log
        self._now = now
        self._adopting: dict[str, asyncio.Task[ErrorCode]] = {}
        self._adopted: set[str] = set()
        """Groups whose offsets were copied, as far as they do not exist yet: a held name alone is not enough."""
        self._releasing: set[str] = set()
        self._logged: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # -- adoption ------------------------------------------------------------------------------------------------------

    def is_ready(self, group_id: str) -> bool:
        """The group can be served at once."""
        if self._releasing and group_id in self._releasing:
            return False
        if self._groups.coordinator.knows(group_id) or not group_id:
            return True
        return group_id in self._adopted and self._names.is_held(group_id)

    async def prepare(self, group_id: str, *, creates: bool) -> ErrorCode:
        """The error for its requests. `creates`: the request may create the group."""
        if group_id in self._releasing:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        running = self._adopting.get(group_id)
        if running is None:
            running = asyncio.create_task(self._adopt(group_id, creates=creates))
            self._adopting[group_id] = running
            running.add_done_callback(lambda _: self._adopting.pop(group_id, None))
        # Shielded: a client that disconnects must not interrupt the adoption for the others.
        code = await asyncio.shield(running)
        if code is ErrorCode.NONE and creates and not self.is_ready(group_id):
            return await self.prepare(group_id, creates=True)  # the first request did not create it
        return code

    async def _adopt(self, group_id: str, *, creates: bool) -> ErrorCode:
        try:
            if not creates and await self.describe_in_kafka(group_id) is None:
                return ErrorCode.NONE
            offsets = await self._adoption.adopt(group_id)
            if not offsets:
                self._adopted.add(group_id)
                return ErrorCode.NONE
            # One append: after a crash, the group has all of its offsets here or none.
            commit = Commit(group_id, -1, "", None, _GATEWAY, None, offsets)
            errors = await self._submit(self._commit_command(commit))
        except NameInUse as error:
            self._log_seldom(group_id, str(error))
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        except (KafkaRefused, KafkaUnreachable) as error:
            self._log_seldom(group_id, f"group {group_id[:100]!r} cannot be adopted: {error}")
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        code = next((ErrorCode(code) for code in errors.values() if code), ErrorCode.NONE)
        if code is ErrorCode.NONE:
            self._adopted.add(group_id)
            log_event(logger, "group adopted from Kafka", group=group_id[:100], offsets=len(offsets))
        return code

    def _commit_command(self, commit: Commit) -> Callable[[object, int], Any]:
        def command(reply: object, now_ms: int) -> Any:
            commit.reply_handle = reply
            return self._groups.coordinator.commit_offsets(commit, COMMIT_VERSION, now_ms)

        return command

    async def _submit(self, command: Callable[..., Any], *arguments: object) -> Any:
        answer = self._groups.submit(command, *arguments)
        return await answer if isinstance(answer, Coroutine) else answer

    async def describe_in_kafka(self, group_id: str) -> DescribedGroup | None:
        """None if Kafka does not have the group, or only the gateway's member in it."""
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
        return self._groups.coordinator.knows(group_id) or group_id in self._adopting

    def deleted(self, group_id: str) -> None:
        """The coordinator has deleted the group. Its offsets in Kafka, from before the adoption, must not come back."""
        self._adopted.discard(group_id)
        if group_id in self._releasing:
            return
        task = asyncio.create_task(self._give_up(group_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _give_up(self, group_id: str) -> None:
        try:
            await self._names.release(group_id)
            await self.delete_in_kafka(group_id)
        except (KafkaRefused, KafkaUnreachable) as error:
            logger.warning("the name of the deleted group %.100r is still held in Kafka: %s", group_id, error)

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
        tasks = [*self._adopting.values(), *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
