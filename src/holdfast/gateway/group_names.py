"""The gateway holds the name of each of its groups in Kafka's own coordinator.

A client that goes to Kafka directly, around the gateway, would otherwise get a second group of the same name, with its
own members and offsets. `name_claims` says how a name is held. This module keeps it held, with heartbeats, and by a new
join after Kafka has lost the member or the gateway was restarted. When the gateway stops, it does not leave its groups.
The sessions of its members last until it has started again.

A name that cannot be held, because the group has other members in Kafka, is a conflict. It is reported once, and the
gateway tries to hold the name until they have left.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

from holdfast.broker.structured_log import log_event
from holdfast.broker.util.slices import SliceScheduler
from holdfast.gateway.kafka.errors import KafkaRefused, KafkaUnreachable
from holdfast.gateway.kafka_groups import KafkaGroups
from holdfast.gateway.name_checks import NameChecks, Survey
from holdfast.gateway.name_claims import INSTANCE_ID, PROTOCOL_TYPE, HeldMember, NameClaims, NameInUse
from holdfast.gateway.upstream import Upstream
from holdfast.wire.error_codes import ErrorCode

__all__ = ["INSTANCE_ID", "PROTOCOL_TYPE", "GroupNames", "HeldMember", "NameInUse"]

logger = logging.getLogger(__name__)

CHECK_INTERVAL_S: Final = 60.0

_HEARTBEATS_PER_SESSION: Final = 6
_JITTER: Final = (0.8, 1.0)
_FIRST_RETRY_S: Final = 1.0
_LONGEST_RETRY_S: Final = 60.0
_AT_ONCE: Final = 8
"""How many names are claimed or released at once in the background. It does not limit clients that wait for a name."""
_BETWEEN_CLAIMS_S: Final = 0.004
"""At most 250 claims begin in a second in the background, so that Kafka has time for its clients."""
_FENCED_LOG_S: Final = 60.0
_UNUSED_CHECKS: Final = 3
"""A name is released if its group is not on the gateway in this many checks: its join may have been rejected."""
_MEMBER_ATTEMPTS: Final = 3

T = TypeVar("T")
_REJOIN: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS})


class _Name:
    """The name of one group. At most one task claims it or sends its heartbeat."""

    __slots__ = (
        "failure",
        "group_id",
        "is_fenced",
        "is_taken",
        "is_wanted",
        "leaving",
        "member",
        "retry_s",
        "taken",
        "task",
        "timer",
        "unused_checks",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id: Final = group_id
        self.is_wanted = False
        """It is claimed again until it is released. A first claim for a client is not."""
        self.is_taken = False
        self.is_fenced = False
        """Another gateway holds it."""
        self.member: HeldMember | None = None
        """None until the group is stable in Kafka."""
        self.failure: Exception | None = None
        self.taken: asyncio.Future[None] | None = None
        """What callers of `hold` wait for."""
        self.task: asyncio.Task[None] | None = None
        self.leaving: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.retry_s = _FIRST_RETRY_S
        self.unused_checks = 0

    def settle(self, failure: Exception | None) -> None:
        """Answers the callers of `hold`."""
        if self.taken is not None and not self.taken.done():
            if failure is None:
                self.taken.set_result(None)
            else:
                self.taken.set_exception(failure)
                self.taken.exception()  # every caller may have been cancelled, and asyncio would log the failure
        self.taken = None


class GroupNames:
    def __init__(
        self, cluster: Upstream, slices: SliceScheduler | None = None, *, check_interval_s: float = CHECK_INTERVAL_S
    ) -> None:
        self.is_ours: Callable[[str], bool] = lambda _group_id: True
        """Whether a group is on the gateway."""
        self.on_conflict: Callable[[str, str], None] = lambda _group_id, text: logger.error("%s", text)
        """Called with a group and a sentence if a group of the gateway has other members in Kafka, once until they have
        left."""
        self._slices = slices or SliceScheduler()
        self._check_interval_s = check_interval_s
        groups = KafkaGroups(cluster)
        self._claims = NameClaims(cluster, groups)
        self._checks = NameChecks(cluster, groups, self._slices)
        self._names: dict[str, _Name] = {}
        self._conflicts: set[str] = set()
        self._in_background = asyncio.Semaphore(_AT_ONCE)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._fenced_count = 0
        self._next_fenced_log = 0.0
        self._is_stopped = False

    # -- for requests --------------------------------------------------------------------------------------------------

    def is_held(self, group_id: str) -> bool:
        name = self._names.get(group_id)
        return name is not None and name.is_taken and name.leaving is None

    def held(self) -> list[str]:
        """The groups whose names are held."""
        return [group_id for group_id in self._names if self.is_held(group_id)]

    @property
    def connection_count(self) -> int:
        """The number of connections on which groups are joined."""
        return self._claims.connection_count

    async def hold(self, group_id: str) -> None:
        """Returns when Kafka's coordinator has the gateway's member. The join is completed in the background.

        Raises NameInUse, KafkaUnreachable or KafkaRefused.
        """
        while (name := self._names.get(group_id)) is not None and name.leaving is not None:
            await asyncio.wait((name.leaving,))
        if self._is_stopped:
            raise KafkaUnreachable(f"the name of group {group_id!r} is not held: the gateway is being stopped")
        if name is None:
            name = self._names[group_id] = _Name(group_id)
        if name.is_taken:
            return
        taken = name.taken
        if taken is None:
            taken = name.taken = asyncio.get_running_loop().create_future()
        self._begin_claim(name)
        await asyncio.wait((taken,))  # unlike `await taken`, does not pass a cancellation on
        taken.result()

    async def release(self, group_id: str) -> None:
        """Leaves the group in Kafka. It is no error if the gateway has no member there."""
        name = self._names.get(group_id)
        if name is None:
            name = self._names[group_id] = _Name(group_id)
        if name.leaving is None:
            name.leaving = self._start(self._leave(name))
        leaving = name.leaving
        await asyncio.wait((leaving,))
        if leaving.cancelled():
            raise KafkaUnreachable(f"the name of group {group_id!r} is not released: the gateway is being stopped")
        leaving.result()

    async def member(self, group_id: str, *, instead_of: HeldMember | None = None) -> HeldMember:
        """The gateway's member of the group, with which offsets can be committed in Kafka. Waits for the join.

        `instead_of` is a member that Kafka does not accept any more. Raises as `hold` does.
        """
        failure: Exception | None = None
        for _ in range(_MEMBER_ATTEMPTS):
            await self.hold(group_id)
            name = self._names.get(group_id)
            if name is None:
                continue
            if name.member is None or name.member == instead_of:
                self._begin_claim(name)
            if name.task is not None:
                await asyncio.wait((name.task,))
            if name.member is not None and name.member != instead_of:
                return name.member
            failure = name.failure
        raise failure or KafkaUnreachable(f"Kafka does not complete the join of group {group_id!r}")

    # -- for the gateway -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins to look for conflicts from time to time."""
        self._start(self._check_forever())

    async def stop(self) -> None:
        """Keeps the names. Kafka frees them when the sessions end, unless a gateway joins again."""
        self._is_stopped = True
        for name in self._names.values():
            _cancel_timer(name)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._claims.close()

    def hold_all(self, group_ids: Iterable[str]) -> None:
        """Holds the names of all groups in the background, after a restart. Failures are retried."""
        self._start(self._hold_all(list(group_ids)))

    async def release_orphans(self) -> list[str]:
        """Leaves groups that are not on the gateway, such as groups that were deleted while Kafka was not reachable.

        Call it only after the state of all groups has been loaded. Returns the groups that were left.
        """
        orphans = await self._checks.orphans(lambda group_id: group_id in self._names or self.is_ours(group_id))
        released = [group_id for group_id in orphans if group_id not in self._names and not self.is_ours(group_id)]
        results = await asyncio.gather(*map(self._release_unused, released))
        return [group_id for group_id, is_released in zip(released, results, strict=True) if is_released]

    async def check(self) -> None:
        """Looks for conflicts, for names that were lost, and for names that are not needed."""
        survey = await self._checks.survey(lambda group_id: group_id in self._names or self.is_ours(group_id))
        for group_id, members in survey.used.items():
            if self.is_ours(group_id):
                self._report_conflict(NameInUse(group_id, members))
        if survey.is_complete:
            for group_id in self._conflicts - survey.used.keys():
                self._end_conflict(group_id)
        async for name in self._slices.iterate(list(self._names.values())):
            self._check_name(name, survey)

    # -- claims --------------------------------------------------------------------------------------------------------

    def _begin_claim(self, name: _Name) -> None:
        if name.task is None:
            _cancel_timer(name)
            name.task = self._start(self._claim(name))

    async def _claim(self, name: _Name) -> None:
        failure: Exception = KafkaUnreachable(f"the claim of group {name.group_id!r} was ended")
        name.member = None
        try:
            name.member = await self._claims.claim(name.group_id, lambda: self._taken(name))
        except (NameInUse, KafkaUnreachable, KafkaRefused) as error:
            failure = error
        except Exception as error:  # it is retried, and nobody must wait for ever
            logger.exception("the name of a group could not be held")
            failure = KafkaUnreachable(f"the name of group {name.group_id!r} could not be held: {error}")
        finally:
            name.task = None
            if name.member is not None:
                self._claimed(name)
            else:
                self._not_claimed(name, failure)

    def _taken(self, name: _Name) -> None:
        name.is_taken = name.is_wanted = True
        name.is_fenced = False
        name.settle(None)

    def _claimed(self, name: _Name) -> None:
        name.failure = None
        name.retry_s = _FIRST_RETRY_S
        self._end_conflict(name.group_id)
        self._beat_later(name)

    def _not_claimed(self, name: _Name, failure: Exception) -> None:
        name.failure = failure
        if not isinstance(failure, KafkaUnreachable):
            name.is_taken = False
        if isinstance(failure, KafkaRefused) and failure.code is ErrorCode.FENCED_INSTANCE_ID:
            self._fenced(name)
        elif name.is_wanted:
            if isinstance(failure, NameInUse):
                self._report_conflict(failure)
            elif not self._is_stopped:
                level = logging.WARNING if name.retry_s == _FIRST_RETRY_S else logging.DEBUG
                log_event(logger, "name of a group is not held", level, group=name.group_id, error=failure)
            self._retry_later(name)
        elif name.leaving is None:
            self._names.pop(name.group_id, None)
        name.settle(failure)

    async def _hold_all(self, group_ids: list[str]) -> None:
        for group_id in group_ids:
            name = self._names.get(group_id)
            if name is None:
                name = self._names[group_id] = _Name(group_id)
            name.is_wanted = True
            if name.is_taken or name.leaving is not None or name.task is not None:
                continue
            await self._in_background.acquire()
            self._begin_claim(name)
            assert name.task is not None
            name.task.add_done_callback(lambda _: self._in_background.release())
            await asyncio.sleep(_BETWEEN_CLAIMS_S)

    # -- heartbeats ----------------------------------------------------------------------------------------------------

    def _beat_later(self, name: _Name) -> None:
        self._later(name, self._claims.session_timeout_s / _HEARTBEATS_PER_SESSION)

    def _retry_later(self, name: _Name) -> None:
        self._later(name, name.retry_s)
        name.retry_s = min(2 * name.retry_s, _LONGEST_RETRY_S)

    def _later(self, name: _Name, delay_s: float) -> None:
        """Sends a heartbeat, or claims the name if it is not held."""
        _cancel_timer(name)
        if name.leaving is None and not self._is_stopped:
            loop = asyncio.get_running_loop()
            name.timer = loop.call_later(delay_s * random.uniform(*_JITTER), self._beat_now, name)

    def _beat_now(self, name: _Name) -> None:
        _cancel_timer(name)
        if name.member is None:
            self._begin_claim(name)
        elif name.task is None:
            name.task = self._start(self._beat(name, name.member))

    async def _beat(self, name: _Name, member: HeldMember) -> None:
        try:
            code = await self._claims.heartbeat(name.group_id, member)
        except (KafkaUnreachable, KafkaRefused) as failure:
            log_event(logger, "heartbeat failed", logging.DEBUG, group=name.group_id, error=failure)
            self._retry_later(name)
            return
        finally:
            name.task = None
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self._fenced(name)
        elif code in _REJOIN:
            self._begin_claim(name)
        elif code is ErrorCode.NONE:
            name.retry_s = _FIRST_RETRY_S
            self._beat_later(name)
        else:
            log_event(logger, "heartbeat refused", logging.WARNING, group=name.group_id, error=code.name)
            self._retry_later(name)

    def _fenced(self, name: _Name) -> None:
        """It is not claimed again: two gateways would take it from each other for ever."""
        name.is_fenced, name.is_taken, name.member = True, False, None
        self._fenced_count += 1
        now = asyncio.get_running_loop().time()
        if now >= self._next_fenced_log:
            self._next_fenced_log = now + _FENCED_LOG_S
            log_event(
                logger,
                "another gateway has taken the names of groups: stop one of the two",
                logging.ERROR,
                group=name.group_id,
                names=self._fenced_count,
            )

    # -- checks --------------------------------------------------------------------------------------------------------

    async def _check_forever(self) -> None:
        while True:
            await asyncio.sleep(self._check_interval_s * random.uniform(*_JITTER))
            try:
                await self.check()
            except Exception:  # the next check may succeed
                logger.exception("the groups of Kafka could not be checked")

    def _check_name(self, name: _Name, survey: Survey) -> None:
        if name.task is not None or name.leaving is not None:
            return
        name.unused_checks = 0 if self.is_ours(name.group_id) else name.unused_checks + 1
        if name.unused_checks >= _UNUSED_CHECKS:
            self._start(self._release_unused(name.group_id))
            return
        if survey.is_complete and name.group_id not in survey.held and (name.is_fenced or name.is_taken):
            self._beat_now(name)

    def _report_conflict(self, conflict: NameInUse) -> None:
        if conflict.group_id in self._conflicts:
            return
        self._conflicts.add(conflict.group_id)
        try:
            self.on_conflict(conflict.group_id, str(conflict))
        except Exception:  # names are held further
            logger.exception("a conflict could not be recorded")

    def _end_conflict(self, group_id: str) -> None:
        if group_id in self._conflicts:
            self._conflicts.discard(group_id)
            log_event(logger, "group is no longer used around the gateway", group=group_id)

    # -- release -------------------------------------------------------------------------------------------------------

    async def _leave(self, name: _Name) -> None:
        is_left = False
        try:
            _cancel_timer(name)
            if name.task is not None:  # a JoinGroup under way would come after the LeaveGroup
                await asyncio.wait((name.task,))
            await self._claims.leave(name.group_id)
            is_left = True
        finally:
            name.leaving = None
            if is_left:
                self._names.pop(name.group_id, None)
                self._end_conflict(name.group_id)
            elif name.is_taken:
                self._retry_later(name)
            elif not name.is_wanted:
                self._names.pop(name.group_id, None)

    async def _release_unused(self, group_id: str) -> bool:
        async with self._in_background:
            try:
                await self.release(group_id)
            except (KafkaUnreachable, KafkaRefused) as failure:
                log_event(logger, "name of a group is not released", logging.WARNING, group=group_id, error=failure)
                return False
        log_event(logger, "released the name of a group that is not on the gateway", group=group_id)
        return True

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)  # the loop itself holds tasks weakly
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the caller of `release` may have been cancelled


def _cancel_timer(name: _Name) -> None:
    if name.timer is not None:
        name.timer.cancel()
        name.timer = None
