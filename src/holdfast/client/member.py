"""`Member`: membership in a group of any type, whose members divide any kind of work among themselves.

    def assign(members):
        return {member.member_id: {"shard": number} for number, member in enumerate(members)}

    config = {"bootstrap.servers": "localhost:9092", "group.id": "shards"}
    with Member(config, "shards", {"even": {}}, assign) as member:
        print(member.wait_for_assignment(10).state)

The members' metadata and their assignments are JSON, or plain bytes (`codec="bytes"`). The callbacks run one at a time,
in a thread of the member. Heartbeats continue meanwhile.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, Self

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.config import read_config
from holdfast.client.errors import (
    AssignorError,
    CallbackError,
    ConfigError,
    HoldfastError,
    RequestTimedOut,
    from_failure,
)
from holdfast.client.membership_config import NAMES as MEMBERSHIP_NAMES
from holdfast.client.membership_config import membership_settings
from holdfast.client.membership_thread import MembershipThread
from holdfast.client.runtime import SYSTEM, Runtime
from holdfast.client.settings import NAMES as NETWORK_NAMES
from holdfast.client.settings import NetworkSettings
from holdfast.membership.assignment import AssignorFault
from holdfast.membership.effects import Failed, JoinComplete, JoinPrepare, LeaderElected, LeftGroup
from holdfast.membership.failures import Failure, FailureKind
from holdfast.wire.consumer_protocol import PROTOCOL_TYPE as CONSUMER

NAMES: Final = MEMBERSHIP_NAMES | NETWORK_NAMES
CLOSE_TIMEOUT_S: Final = 10.0
LEAVE_TIMEOUT_S: Final = 3.0
_EVENT_WAIT_S: Final = 0.5

logger = logging.getLogger("holdfast.client")


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member as the leader sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: Any


@dataclass(frozen=True, slots=True)
class MemberState:
    """The assignment of this member, and its generation."""

    state: Any
    generation: int
    member_id: str
    is_leader: bool
    assignment_epoch: int | None = None
    """Increases with every change of assignments. None if the broker has no assignment epochs, as with Apache Kafka."""


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
        _runtime: Runtime = SYSTEM,
    ) -> None:
        """`protocols`: this member's metadata by protocol name, the preferred one first; or a function that returns
        them before each join. `assign` is called if this member leads. `on_revoked` is called before each rejoin, with
        True if the member has lost its generation."""
        if not protocol_type or protocol_type == CONSUMER:
            raise ConfigError(f"protocol type {protocol_type!r}: use a name of your own, or holdfast.Consumer")
        settings = read_config(config, {}, NAMES)
        self._encode: Callable[[Any], bytes] = _to_json if codec == "json" else _as_bytes
        self._decode: Callable[[bytes], Any] = _from_json if codec == "json" else bytes
        self._protocols = protocols
        self._assign = assign
        self._on_assignment = on_assignment
        self._on_revoked = on_revoked
        self._settings = membership_settings(settings, protocol_type)
        self._clock = _runtime.clock
        self._membership_thread = MembershipThread(
            self._settings,
            ClusterClient(NetworkSettings.of_groups(settings), runtime=_runtime),
            f"holdfast-{self._settings.group_id}",
        )
        self._changed = threading.Condition()
        self._current: MemberState | None = None
        self._may_own = False
        """Whether the application has received an assignment since the generation was last lost."""
        self._failure: HoldfastError | None = None
        self._stopping = False
        self._left = threading.Event()
        name = f"holdfast-{self._settings.group_id}-member"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # -- the application's calls ---------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Join the group."""
        self._membership_thread.start()
        self._membership_thread.submit(lambda membership, now: membership.join(now))
        self._thread.start()
        return self

    @property
    def current(self) -> MemberState | None:
        """The current assignment, or None. Raises the failure that ended the membership."""
        with self._changed:
            if self._failure is not None:
                raise self._failure
            return self._current

    def wait_for_assignment(self, timeout: float, *, newer_than: int = -1) -> MemberState:
        """Waits for the assignment of a generation after `newer_than`."""
        deadline = self._clock.now() + timeout
        with self._changed:
            while self._failure is None:
                if self._current is not None and self._current.generation > newer_than:
                    return self._current
                if not self._clock.wait_notified(self._changed, deadline - self._clock.now()):
                    raise self.no_assignment_error(timeout)
            raise self._failure

    def no_assignment_error(self, timeout: float) -> RequestTimedOut:
        """The error if there was no assignment in this time."""
        error = self._membership_thread.last_error
        because = "" if error is None else f": {error}"
        return RequestTimedOut(f"group {self._settings.group_id!r} gave no assignment within {timeout} s{because}")

    def rejoin(self, reason: str) -> None:
        """Start a rebalance because this member's metadata has changed."""
        self._membership_thread.submit(lambda membership, now: membership.rejoin(reason, now))

    def close(self, timeout: float = CLOSE_TIMEOUT_S, *, leave: bool = False) -> None:
        """A dynamic member leaves the group. A static member stays in the group until its session expires, unless
        `leave`."""
        if self._stopping:
            return
        if self._thread.is_alive() and self._failure is None:
            self._membership_thread.submit(
                lambda membership, now: membership.leave("the member is being closed", now, even_if_static=leave)
            )
            if self._thread is threading.current_thread():  # called by a callback: no other thread takes the events
                self._wait_until_left(timeout)
            else:
                self._clock.wait(self._left, timeout)
        self._stopping = True
        self._membership_thread.stop()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._clock.join(self._thread, timeout)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- the member's thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping and not self._left.is_set():
                self._membership_thread.touch_poll()
                event = self._membership_thread.next_event(_EVENT_WAIT_S)
                match event:
                    case JoinPrepare():
                        self._prepare_join(event)
                    case LeaderElected():
                        self._perform_assignment(event)
                    case JoinComplete():
                        self._complete_join(event)
                    case Failed(failure):
                        self._fail(from_failure(failure, fatal=True))
                    case LeftGroup():
                        self._left.set()
                    case None:
                        pass
        except HoldfastError as error:
            self._fail(error)
        except Exception as error:  # from the application's `protocols`, probably
            logger.exception("the thread of a member failed")
            self._fail(CallbackError(f"the member failed with {type(error).__name__}: {error}", fatal=True))
        finally:
            self._end()

    def _end(self) -> None:
        """After a failure no thread handles events, so the member leaves at once rather than by session timeout."""
        try:
            self._revoke(lost=self._failure is not None)
        except HoldfastError as error:
            self._fail(error)
        if self._failure is None:
            return
        self._membership_thread.submit(lambda membership, now: membership.leave("the member failed", now))
        self._wait_until_left(LEAVE_TIMEOUT_S)
        self._membership_thread.stop()

    def _wait_until_left(self, timeout: float) -> None:
        deadline = self._clock.now() + timeout
        while (left_s := deadline - self._clock.now()) > 0 and self._membership_thread.is_alive:
            if isinstance(self._membership_thread.next_event(min(_EVENT_WAIT_S, left_s)), LeftGroup):
                break
        self._left.set()

    def _prepare_join(self, event: JoinPrepare) -> None:
        self._revoke(lost=event.lost)
        given = self._protocols() if callable(self._protocols) else self._protocols
        protocols = [(name, self._encode(metadata)) for name, metadata in given.items()]
        number = event.attempt
        self._membership_thread.submit(lambda membership, now: membership.join_prepared(number, protocols, now))

    def _revoke(self, *, lost: bool) -> None:
        with self._changed:
            held, self._current = self._current, None
        # After a revocation the application may continue with its old assignment. If the generation is lost then, it
        # must be notified.
        concerned = held is not None or (lost and self._may_own)
        self._may_own = self._may_own and not lost
        if concerned and self._on_revoked is not None:
            self._run_callback("on_revoked", lambda: self._on_revoked(lost) if self._on_revoked else None)

    def _perform_assignment(self, event: LeaderElected) -> None:
        generation = event.generation_id
        if event.skip_assignment:
            self._membership_thread.submit(lambda membership, now: membership.assignment_ready(generation, {}, now))
            return
        try:
            members = [
                GroupMember(one.member_id, one.group_instance_id, self._decode_metadata(one.metadata))
                for one in event.members
            ]
            states = self._assign(members)
            unknown = sorted(set(states) - {one.member_id for one in event.members})
            if unknown:
                raise ValueError(f"it gave something to {unknown[0]!r}, which is not in the group")
            encoded = {one.member_id: self._encode(states.get(one.member_id)) for one in event.members}
        except Exception as error:
            message = f"assign raised {type(error).__name__}: {error}"
            if not self._membership_thread.has_extensions:
                self._membership_thread.submit(
                    lambda membership, _now: membership.assignment_failed(generation, message)
                )
                raise AssignorError(message, fatal=True) from error
            # The coordinator elects another leader. If that fails, too, `Failed` follows.
            logger.warning("%s; this member led group %r", message, self._settings.group_id)
            self._membership_thread.submit(
                lambda membership, now: membership.report_assignment_failure(
                    generation, AssignorFault.RAISED, message, now
                )
            )
            return
        self._membership_thread.submit(lambda membership, now: membership.assignment_ready(generation, encoded, now))

    def _decode_metadata(self, metadata: bytes) -> Any:
        """The metadata of another member; None if it is unreadable, which must not stop the group."""
        try:
            return self._decode(metadata)
        except ValueError:
            return None

    def _complete_join(self, event: JoinComplete) -> None:
        try:
            state = self._decode(event.assignment)
        except ValueError as error:
            message = f"the assignment that the leader made cannot be read: {error}"
            raise from_failure(Failure(FailureKind.ASSIGNOR, message), fatal=True) from error
        adopted = MemberState(state, event.generation_id, event.member_id, event.is_leader, event.epoch)
        with self._changed:
            self._current = adopted
            self._may_own = True
            self._changed.notify_all()
        if self._on_assignment is not None:
            listener = self._on_assignment
            self._run_callback("on_assignment", lambda: listener(adopted))

    def _run_callback(self, name: str, callback: Callable[[], None]) -> None:
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
    """Empty bytes are None: the assignment of a member that the leader omitted."""
    return json.loads(bytes(data)) if data else None


def _as_bytes(value: Any) -> bytes:
    if value is None:
        return b""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"with codec='bytes' metadata and states are bytes, not {type(value).__name__}")
    return bytes(value)
