"""`Member`: membership in a group of any kind, for whatever a group can share.

    def assign(members):
        return {member.member_id: {"shard": number} for number, member in enumerate(members)}

    config = {"bootstrap.servers": "localhost:9092", "group.id": "shards"}
    with Member(config, "shards", {"even": {}}, assign) as member:
        print(member.wait_for_assignment(10).state)

What the members say of themselves and what they are given is JSON, or bytes as they are (`codec="bytes"`). The
callbacks run in a thread of the member's own, one at a time; while one of them runs, the heartbeats go on.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, Self

from holdfast.client.config import read_config
from holdfast.client.driver import Driver
from holdfast.client.errors import AssignorError, CallbackError, ConfigError, HoldfastError, RequestTimedOut
from holdfast.client.membership_config import NAMES as MEMBERSHIP_NAMES
from holdfast.client.membership_config import membership_settings
from holdfast.client.network import Network
from holdfast.client.outcomes import exception
from holdfast.client.settings import NAMES as NETWORK_NAMES
from holdfast.client.settings import NetworkSettings
from holdfast.membership.effects import Adopt, Failed, Lead, Left, Prepare
from holdfast.membership.failures import Failure, FailureKind
from holdfast.membership.leading import Fault
from holdfast.wire.consumer_protocol import PROTOCOL_TYPE as CONSUMER

NAMES: Final = MEMBERSHIP_NAMES | NETWORK_NAMES
CLOSE_TIMEOUT_S: Final = 10.0
GOODBYE_S: Final = 3.0
_TURN_S: Final = 0.5

logger = logging.getLogger("holdfast.client")


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member as the leader sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: Any


@dataclass(frozen=True, slots=True)
class MemberState:
    """What this member was given, and in which generation."""

    state: Any
    generation: int
    member_id: str
    is_leader: bool
    assignment_epoch: int | None = None
    """Rises with every change of who has what; None where the broker has none, as Apache Kafka."""


Assign = Callable[[Sequence[GroupMember]], Mapping[str, Any]]


class Member:
    def __init__(
        self,
        config: Mapping[str, Any],
        protocol_type: str,
        protocols: Mapping[str, Any] | Callable[[], Mapping[str, Any]],
        assign: Assign,
        *,
        on_assignment: Callable[[MemberState], None] | None = None,
        on_revoked: Callable[[bool], None] | None = None,
        codec: Literal["json", "bytes"] = "json",
    ) -> None:
        """`protocols`: what this member says of itself, by protocol name, the preferred one first; or a function that
        is asked anew before each join. `assign` is called where this member leads. `on_revoked` is called before each
        rejoin, with True if the seat was lost."""
        if not protocol_type or protocol_type == CONSUMER:
            raise ConfigError(f"protocol type {protocol_type!r}: use a name of your own, or holdfast.Consumer")
        settings = read_config(config, {}, NAMES)
        self._encode: Callable[[Any], bytes] = _to_json if codec == "json" else _as_bytes
        self._decode: Callable[[bytes], Any] = _from_json if codec == "json" else bytes
        self._protocols = protocols
        self._assign = assign
        self._on_assignment = on_assignment
        self._on_revoked = on_revoked
        self._membership = membership_settings(settings, protocol_type)
        self._driver = Driver(
            self._membership, Network(NetworkSettings.from_config(settings)), f"holdfast-{self._membership.group_id}"
        )
        self._changed = threading.Condition()
        self._current: MemberState | None = None
        self._may_hold = False
        """Whether the application was given something since it was last told that the seat is lost."""
        self._failure: HoldfastError | None = None
        self._stopping = False
        self._left = threading.Event()
        name = f"holdfast-{self._membership.group_id}-member"
        self._thread = threading.Thread(target=self._attend, name=name, daemon=True)

    # -- the application's calls ---------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Join the group."""
        self._driver.start()
        self._driver.do(lambda membership, now: membership.join(now))
        self._thread.start()
        return self

    @property
    def current(self) -> MemberState | None:
        """What this member has now; None while it has nothing. Raises what ended the membership."""
        with self._changed:
            if self._failure is not None:
                raise self._failure
            return self._current

    def wait_for_assignment(self, timeout: float, *, newer_than: int = -1) -> MemberState:
        """The assignment, once there is one of a generation after `newer_than`."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while self._failure is None:
                if self._current is not None and self._current.generation > newer_than:
                    return self._current
                if not self._changed.wait(deadline - time.monotonic()):
                    raise self.gave_nothing_within(timeout)
            raise self._failure

    def gave_nothing_within(self, timeout: float) -> RequestTimedOut:
        """What to say when the group has given no assignment for so long."""
        trouble = self._driver.trouble
        because = "" if trouble is None else f": {trouble}"
        return RequestTimedOut(f"group {self._membership.group_id!r} gave no assignment within {timeout} s{because}")

    def rejoin(self, reason: str) -> None:
        """Have the group rebalance, because what this member says of itself has changed."""
        self._driver.do(lambda membership, now: membership.rejoin(reason, now))

    def close(self, timeout: float = CLOSE_TIMEOUT_S, *, leave: bool = False) -> None:
        """A dynamic member leaves the group; a static one keeps its seat, unless `leave` says that it means it."""
        if self._stopping:
            return
        if self._thread.is_alive() and self._failure is None:
            self._driver.do(
                lambda membership, now: membership.leave("the member is being closed", now, even_if_static=leave)
            )
            if self._thread is threading.current_thread():  # a callback closes: nobody else takes the events
                self._wait_until_left(timeout)
            else:
                self._left.wait(timeout)
        self._stopping = True
        self._driver.stop()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- the member's thread -------------------------------------------------------------------------------------------

    def _attend(self) -> None:
        try:
            while not self._stopping and not self._left.is_set():
                self._driver.polled()
                event = self._driver.take_event(_TURN_S)
                match event:
                    case Prepare():
                        self._prepare(event)
                    case Lead():
                        self._lead(event)
                    case Adopt():
                        self._adopt(event)
                    case Failed(failure):
                        self._fail(exception(failure, fatal=True))
                    case Left():
                        self._left.set()
                    case None:
                        pass
        except HoldfastError as error:
            self._fail(error)
        except Exception as error:  # what the application says of itself, likely
            logger.exception("the thread of a member failed")
            self._fail(CallbackError(f"the member failed with {type(error).__name__}: {error}", fatal=True))
        finally:
            self._end()

    def _end(self) -> None:
        """After a failure nobody attends any more: let go, and say goodbye rather than be missed for a session."""
        try:
            self._let_go(lost=self._failure is not None)
        except HoldfastError as error:
            self._fail(error)
        if self._failure is None:
            return
        self._driver.do(lambda membership, now: membership.leave("the member failed", now))
        self._wait_until_left(GOODBYE_S)
        self._driver.stop()

    def _wait_until_left(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and self._driver.is_alive:
            if isinstance(self._driver.take_event(min(_TURN_S, max(0.0, deadline - time.monotonic()))), Left):
                break
        self._left.set()

    def _prepare(self, event: Prepare) -> None:
        self._let_go(lost=event.lost)
        given = self._protocols() if callable(self._protocols) else self._protocols
        protocols = [(name, self._encode(metadata)) for name, metadata in given.items()]
        number = event.number
        self._driver.do(lambda membership, now: membership.prepared(number, protocols, now))

    def _let_go(self, *, lost: bool) -> None:
        with self._changed:
            held, self._current = self._current, None
        # Told of a rebalance, the application may have gone on with what it had; if the seat goes then, it must hear.
        concerned = held is not None or (lost and self._may_hold)
        self._may_hold = self._may_hold and not lost
        if concerned and self._on_revoked is not None:
            self._call("on_revoked", lambda: self._on_revoked(lost) if self._on_revoked else None)

    def _lead(self, event: Lead) -> None:
        generation = event.generation
        if event.skip:
            self._driver.do(lambda membership, now: membership.decided(generation, {}, now))
            return
        try:
            members = [
                GroupMember(one.member_id, one.group_instance_id, self._read(one.metadata)) for one in event.members
            ]
            states = self._assign(members)
            strange = sorted(set(states) - {one.member_id for one in event.members})
            if strange:
                raise ValueError(f"it gave something to {strange[0]!r}, who is not in the group")
            encoded = {one.member_id: self._encode(states.get(one.member_id)) for one in event.members}
        except Exception as error:
            message = f"assign raised {type(error).__name__}: {error}"
            if not self._driver.has_extensions:
                self._driver.do(lambda membership, _now: membership.cannot_decide(generation, message))
                raise AssignorError(message, fatal=True) from error
            # The coordinator lets somebody else lead; if that does not help either, `Failed` says so.
            logger.warning("%s; this member led group %r", message, self._membership.group_id)
            self._driver.do(lambda membership, now: membership.report_failure(generation, Fault.RAISED, message, now))
            return
        self._driver.do(lambda membership, now: membership.decided(generation, encoded, now))

    def _read(self, metadata: bytes) -> Any:
        """What another member says; None where it cannot be read, which must not stop the group."""
        try:
            return self._decode(metadata)
        except ValueError:
            return None

    def _adopt(self, event: Adopt) -> None:
        try:
            state = self._decode(event.assignment)
        except ValueError as error:
            message = f"the assignment that the leader made cannot be read: {error}"
            raise exception(Failure(FailureKind.ASSIGNOR, message), fatal=True) from error
        adopted = MemberState(state, event.generation, event.member_id, event.is_leader, event.epoch)
        with self._changed:
            self._current = adopted
            self._may_hold = True
            self._changed.notify_all()
        if self._on_assignment is not None:
            listener = self._on_assignment
            self._call("on_assignment", lambda: listener(adopted))

    def _call(self, name: str, callback: Callable[[], None]) -> None:
        try:
            callback()
        except HoldfastError:
            raise
        except Exception as error:
            raise CallbackError(f"{name} raised {type(error).__name__}: {error}", fatal=True) from error

    def _fail(self, error: HoldfastError) -> None:
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()


def _to_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _from_json(data: bytes) -> Any:
    """Nothing at all reads as None: a coordinator gives no bytes to a member that its leader forgot."""
    return json.loads(bytes(data)) if data else None


def _as_bytes(value: Any) -> bytes:
    if value is None:
        return b""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"with codec='bytes' metadata and states are bytes, not {type(value).__name__}")
    return bytes(value)
