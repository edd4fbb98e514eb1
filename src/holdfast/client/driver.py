"""The thread in which a membership lives: it gives the machine a clock and sockets, and keeps its heartbeats going.

Only this thread touches the machine. Other threads hand it work with `do` and take what the application must see with
`take_event`. Nothing here runs the application's code: what that has to do (`Prepare`, `Lead`, `Adopt`) waits until the
application comes by, while the heartbeats go on.
"""

from __future__ import annotations

import logging
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.client.addresses import Address
from holdfast.client.connection import Connection
from holdfast.client.errors import AuthenticationFailed, HoldfastError, UnsupportedVersion
from holdfast.client.join_desk import HandedIn, JoinDesk
from holdfast.client.network import Network
from holdfast.client.transport import Waker
from holdfast.membership.effects import (
    Adopt,
    CommitEnded,
    Effect,
    Failed,
    HangUp,
    Lane,
    Lead,
    LeaderFailed,
    Left,
    Prepare,
    Reach,
    Send,
)
from holdfast.membership.failures import Failure, FailureKind
from holdfast.membership.membership import Membership
from holdfast.membership.phases import Phase
from holdfast.membership.requests import Node, Offset
from holdfast.membership.settings import MembershipSettings
from holdfast.wire.apis.add_members_to_group import ADD_MEMBERS_TO_GROUP
from holdfast.wire.apis.join_group import JOIN_GROUP, JoinGroupResponse
from holdfast.wire.apis.join_groups import AS_JOIN_GROUP_VERSION
from holdfast.wire.message import Api

LONGEST_WAIT_MS: Final = 60_000
LONGEST_CONNECT_S: Final = 5.0
"""Looking for a broker is done in slices, so that whoever hands over work is heard in between."""
STOP_TIMEOUT_S: Final = 5.0

Event = Prepare | Lead | Adopt | Left | Failed
Answer = Callable[[Any, int], None]
"""Gets the response, or None where there is none, and the time."""
Work = Callable[[Membership, int], None]

logger = logging.getLogger("holdfast.client")


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


@dataclass(slots=True)
class _Asked:
    answer: Answer
    deadline: int


@dataclass(slots=True)
class _Line:
    """One lane: its connection, if it is up, and who waits for what on it."""

    connection: Connection | None = None
    asked: dict[int, _Asked] = field(default_factory=dict)


class Driver:
    """Takes over the network: nobody else may use it."""

    def __init__(self, settings: MembershipSettings, network: Network, name: str) -> None:
        self.trouble: HoldfastError | None = None
        """Why the coordinator could not be reached when it was last tried; None while it is."""
        self.was_reached = False
        self.has_extensions = False
        """Whether the coordinator that was last reached understands what Holdfast says beyond Kafka."""
        self._membership = Membership(settings)
        self._network = network
        self._events: deque[Event] = deque()
        self._event_came = threading.Event()
        self._lines = {lane: _Line() for lane in Lane}
        self._coordinator: Node | None = None
        self._desk: JoinDesk | None = None
        self._at_desk: tuple[HandedIn, Answer] | None = None
        self._commits: dict[int, Callable[[CommitEnded], None]] = {}
        self._work: deque[Work] = deque()
        self._waker = Waker()
        self._stopping = False
        self.last_poll = 0
        """When the application last came by; written by its thread, told to the machine by this one."""
        self._last_poll_told = 0
        self._is_away = False
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)

    # -- for other threads ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Does nothing the second time: a thread that has ended said why, or was told to."""
        if self._thread.ident is None:
            self._thread.start()

    def join_through(self, desk: JoinDesk) -> None:
        """Before `start`: join together with the others who were given this desk, where the coordinator can do that."""
        self._desk = desk

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def has_events(self) -> bool:
        return bool(self._events)

    def do(self, work: Work) -> None:
        """Have something done to the machine, soon, in its own thread."""
        self._work.append(work)
        self._waker.wake()

    def polled(self) -> None:
        """The application is alive. Cheap: it is called by every poll."""
        self.last_poll = now_ms()
        if self._is_away:
            self._waker.wake()

    @property
    def is_away(self) -> bool:
        """Whether the application did not come by for max.poll.interval.ms, and the seat was given up for it."""
        return self._is_away

    def wait_for_event(self, wait_s: float) -> bool:
        """Whether there is something that the application must see; waits for it. Only who takes may wait."""
        if not self._events and wait_s > 0:
            self._event_came.clear()
            if not self._events:  # else it came between the look and the clearing
                self._event_came.wait(wait_s)
        return bool(self._events)

    def take_event(self, wait_s: float = 0.0) -> Event | None:
        """What the application must see next. Only one thread may take."""
        return self._events.popleft() if self.wait_for_event(wait_s) else None

    def commit(
        self, offsets: Mapping[tuple[str, int], Offset], timeout_ms: int, ended: Callable[[CommitEnded], None]
    ) -> None:
        """Store offsets, with the seat there is. `ended` is called once, in the driver's thread."""

        def work(membership: Membership, now: int) -> None:
            self._commits[membership.commit(offsets, now, timeout_ms)] = ended

        self.do(work)

    def ask_coordinator(self, api: Api, build: Callable[[int], Any], timeout_ms: int, answer: Answer) -> None:
        """A question of the application's own, on the lane of the heartbeats. Answered in the driver's thread."""

        def work(_membership: Membership, now: int) -> None:
            self._ask(Lane.SIDE, api, build, api.versions[1], now + timeout_ms, answer)

        self.do(work)

    def stop(self) -> None:
        """End the thread and its connections. What is still outstanding is not waited for."""
        self._stopping = True
        self._network.close()
        self._waker.wake()
        if self._thread.is_alive():
            self._thread.join(STOP_TIMEOUT_S)

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _live(self) -> None:
        try:
            while not self._stopping:
                self._turn()
        except Exception as error:
            # Whatever it is, the application must hear of it: it would wait for partitions for ever.
            if not self._stopping:
                logger.exception("the thread of a group's member failed")
                message = f"the membership ended by a fault of its own: {type(error).__name__}: {error}"
                self._tell(Failed(Failure(FailureKind.REFUSED, message)))
        finally:
            self._membership.close()
            for lane in Lane:
                self._hang_up(lane)
            self._perform_all()
            self._network.close()

    def _turn(self) -> None:
        while self._work:
            self._work.popleft()(self._membership, now_ms())
        self._perform_all()
        now = now_ms()
        self._give_up_waiting(now)
        self._tell_of_polls()
        self._membership.tick(now)
        self._is_away = self._membership.phase is Phase.AWAY
        self._perform_all()
        self._wait()
        for lane, line in self._lines.items():
            self._receive(lane, line)
        self._perform_all()

    def _tell_of_polls(self) -> None:
        last = self.last_poll
        if last != self._last_poll_told:
            self._last_poll_told = last
            self._membership.polled(last)

    def _wait(self) -> None:
        connections = [line.connection for line in self._lines.values() if line.connection is not None]
        if self._work or self._stopping or any(one.pending for one in connections):
            return
        now = now_ms()
        deadlines = [asked.deadline for line in self._lines.values() for asked in line.asked.values()]
        until = min([self._membership.wake_at(now), now + LONGEST_WAIT_MS, *deadlines])
        poll = select.poll()
        poll.register(self._waker, select.POLLIN)
        for connection in connections:
            if connection.fileno() >= 0:
                poll.register(connection, select.POLLIN)
        poll.poll(max(0, until - now))
        self._waker.drain()
        self._waker.take()

    # -- effects -------------------------------------------------------------------------------------------------------

    def _perform_all(self) -> None:
        while effects := self._membership.take_effects():
            for effect in effects:
                self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send():
                self._send(effect)
            case Reach(coordinator):
                self._reach(coordinator)
            case HangUp(lanes):
                for lane in lanes:
                    self._hang_up(lane)
            case CommitEnded():
                self._commits.pop(effect.commit)(effect)
            case LeaderFailed(generation, code, message):
                logger.warning(
                    "generation %d came to nothing, and is tried again: its leader could not assign (%d: %s)",
                    generation,
                    code,
                    message,
                )
            case _:
                self._tell(effect)

    def _tell(self, event: Event) -> None:
        self._events.append(event)
        self._event_came.set()

    def _reach(self, coordinator: Node) -> None:
        self._coordinator = coordinator
        line = self._lines[Lane.SIDE]
        try:
            line.connection = self._open(Lane.SIDE)
            versions = line.connection.versions.get(JOIN_GROUP.key, (0, -1))
            extensions = line.connection.supports(ADD_MEMBERS_TO_GROUP)
        except HoldfastError as error:
            self._note(error)
            self._membership.unreachable(now_ms())
        else:
            self.trouble = None
            self.was_reached = True
            self.has_extensions = extensions
            instance_id = self._membership.instance_id
            self._membership.reached(versions, now_ms(), has_extensions=extensions)
            if instance_id is not None and self._membership.instance_id is None:
                logger.warning(
                    "group.instance.id %r is not used (static.membership.fallback=dynamic): the broker at %s:%d knows "
                    "no static members (JoinGroup up to v%d, v5 is needed). This member joins group %r as a dynamic "
                    "one, and a restart of it is a rebalance",
                    instance_id,
                    coordinator.host,
                    coordinator.port,
                    versions[1],
                    self._membership.settings.group_id,
                )

    def _send(self, send: Send) -> None:
        membership, ticket = self._membership, send.ticket

        def answer(response: Any, now: int) -> None:
            if response is None:
                membership.unanswered(ticket, now)
            else:
                membership.answered(ticket, response, now)

        if send.api is JOIN_GROUP and self._desk is not None and self.has_extensions:
            self._hand_in(self._desk, send, answer)
        else:
            self._ask(send.lane, send.api, send.build, send.highest, now_ms() + send.timeout_ms, answer)

    # -- joining together ----------------------------------------------------------------------------------------------

    def _hand_in(self, desk: JoinDesk, send: Send, answer: Answer) -> None:
        assert self._coordinator is not None
        address = Address(self._coordinator.host, self._coordinator.port)

        def together(response: JoinGroupResponse | None) -> None:
            self.do(lambda _membership, now: answer(response, now) if self._left_desk(join) else None)

        def alone() -> None:
            self.do(lambda _membership, now: self._ask_alone(send, now, answer) if self._left_desk(join) else None)

        deadline = time.monotonic() + send.timeout_ms / 1000
        join = HandedIn(self._network.settings, address, send.build(AS_JOIN_GROUP_VERSION), deadline, together, alone)
        self._at_desk = join, answer
        desk.hand_in(join)

    def _ask_alone(self, send: Send, now: int, answer: Answer) -> None:
        self._ask(send.lane, send.api, send.build, send.highest, now + send.timeout_ms, answer)

    def _left_desk(self, join: HandedIn) -> bool:
        """Whether this is the join that is waited for; from now on it is not at the desk."""
        if self._at_desk is None or self._at_desk[0] is not join:
            return False
        self._at_desk = None
        return True

    # -- lanes ---------------------------------------------------------------------------------------------------------

    def _ask(
        self, lane: Lane, api: Api, build: Callable[[int], Any], highest: int, deadline: int, answer: Answer
    ) -> None:
        line = self._lines[lane]
        try:
            if line.connection is None or line.connection.closed:
                line.connection = self._open(lane)
            version = line.connection.version_of(api, highest)
            line.asked[line.connection.send(build(version), version)] = _Asked(answer, deadline)
        except UnsupportedVersion as error:
            self._membership.fail(Failure(FailureKind.UNSUPPORTED, str(error), error.code))
            answer(None, now_ms())
        except HoldfastError as error:
            self._note(error)
            self._hang_up(lane)
            answer(None, now_ms())

    def _open(self, lane: Lane) -> Connection:
        deadline = time.monotonic() + LONGEST_CONNECT_S
        if lane is Lane.ANY_BROKER:
            return self._network.any(deadline)
        if self._coordinator is None:
            raise HoldfastError("the coordinator is not known yet", retriable=True)
        return self._network.open(Address(self._coordinator.host, self._coordinator.port), deadline)

    def _receive(self, lane: Lane, line: _Line) -> None:
        """Take what has come, until there is no more."""
        while line.connection is not None:
            try:
                received = line.connection.receive(0.0)
            except HoldfastError as error:
                if line.asked:
                    self._note(error)
                self._hang_up(lane)  # with nothing outstanding: the broker closes what is idle
                return
            if received is None:
                return
            asked = line.asked.pop(received[0], None)
            if asked is not None:
                asked.answer(received[1], now_ms())

    def _give_up_waiting(self, now: int) -> None:
        """A request without an answer in time takes its connection with it: a later answer would be another's."""
        for lane, line in self._lines.items():
            if any(asked.deadline <= now for asked in line.asked.values()):
                logger.warning("no answer in time from %s", line.connection and line.connection.address)
                self._hang_up(lane)

    def _hang_up(self, lane: Lane) -> None:
        line = self._lines[lane]
        connection, line.connection = line.connection, None
        if connection is not None:
            connection.close()
        asked, line.asked = line.asked, {}
        for one in asked.values():
            one.answer(None, now_ms())
        if lane is Lane.JOINS and self._desk is not None and self._at_desk is not None:
            (join, answer), self._at_desk = self._at_desk, None
            self._desk.withdraw(join)
            answer(None, now_ms())

    def _note(self, error: HoldfastError) -> None:
        if self._stopping:
            return
        self.trouble = error
        if isinstance(error, AuthenticationFailed):
            # Not tried again: a broker that counts wrong passwords would lock the account.
            self._membership.fail(Failure(FailureKind.NOT_AUTHENTICATED, str(error), error.code))
        else:
            logger.warning("%s", error)
