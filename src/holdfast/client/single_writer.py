"""`SingleWriter`: one process is active, the others wait, and each writer has a fencing token.

    with SingleWriter({"bootstrap.servers": "localhost:9092", "group.id": "ledger-writer"}) as writer:
        token = writer.wait_until_active()
        store.write(row, token=token)      # refuses tokens lower than the highest it has seen

The token is the generation in which this process became the writer. Every change of writer needs a new generation, and
generations only increase, so a writer that was paused and replaced has a lower token than its successor, and a store
that checks tokens rejects it. That is why the writer joins as a dynamic member: a static one would return without a new
generation. If the store does not check tokens, a paused writer may still write after it was replaced.

In Holdfast the generation of a group never decreases. Apache Kafka deletes a group that has had no members for long,
and a new group of that name starts at generation 1. A store that has seen higher tokens then rejects every writer. That
is safe, but the store must be reset by hand.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from holdfast.client.errors import ConfigError, HoldfastError, RequestTimedOut
from holdfast.client.member import GroupMember, Member, MemberState
from holdfast.client.runtime import SYSTEM, Runtime

PROTOCOL_TYPE: Final = "holdfast-writer"
PROTOCOL: Final = "writer-v1"


class SingleWriter:
    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        on_active: Callable[[int], None] | None = None,
        on_standby: Callable[[], None] | None = None,
        _runtime: Runtime = SYSTEM,
    ) -> None:
        if config.get("group.instance.id"):
            raise ConfigError(
                "SingleWriter takes no group.instance.id: a static member returns without a new generation, "
                "and its token would not move when the writer does"
            )
        self._on_active = on_active
        self._on_standby = on_standby
        self._clock = _runtime.clock
        self._changed = threading.Condition()
        self._token: int | None = None
        self._epoch: int | None = None
        self._closing = False
        self._member = Member(
            config,
            PROTOCOL_TYPE,
            self._metadata,
            choose_writer,
            on_assignment=self._assigned,
            on_revoked=self._revoked,
            _runtime=_runtime,
        )

    @property
    def token(self) -> int | None:
        """The fencing token while this process is the writer, otherwise None. Raises the failure that ended the
        membership."""
        _ = self._member.current
        with self._changed:
            return self._token

    @property
    def assignment_epoch(self) -> int | None:
        """The assignment epoch in which this process became the writer. It is comparable with that of a `Consumer`, for
        a store that both write to. None if this process is not the writer or the broker has no assignment epochs, as
        with Apache Kafka."""
        _ = self._member.current
        with self._changed:
            return self._epoch

    @property
    def is_active(self) -> bool:
        return self.token is not None

    def wait_until_active(self, timeout: float | None = None) -> int:
        """Wait until this process is the writer; returns its token."""
        deadline = None if timeout is None else self._clock.now() + timeout
        while True:
            token = self.token
            if token is not None:
                return token
            with self._changed:
                if self._closing:
                    raise HoldfastError("the writer is closed")
                if self._token is None:
                    wait_s = 0.2 if deadline is None else min(0.2, max(0.0, deadline - self._clock.now()))
                    self._clock.wait_notified(self._changed, wait_s)
            if timeout is not None and deadline is not None and self._clock.now() >= deadline and self.token is None:
                if self._member.current is None:  # there is no assignment yet
                    raise self._member.no_assignment_error(timeout)
                raise RequestTimedOut(f"another process has been the writer for {timeout} s")

    def start(self) -> Self:
        self._member.start()
        return self

    def close(self) -> None:
        """Stop writing, and let the next writer start at once."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._stand_by()
        self._member.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- in the member's thread ----------------------------------------------------------------------------------------

    def _metadata(self) -> Mapping[str, Any]:
        with self._changed:
            return {PROTOCOL: {"token": self._token}}

    def _revoked(self, lost: bool) -> None:
        if lost:
            self._stand_by()

    def _assigned(self, adopted: MemberState) -> None:
        if not (adopted.state or {}).get("write"):
            self._stand_by()
            return
        with self._changed:
            if self._token is not None or self._closing:
                return
            self._token, self._epoch = adopted.generation, adopted.assignment_epoch
            self._changed.notify_all()
        if self._on_active is not None:
            self._on_active(adopted.generation)

    def _stand_by(self) -> None:
        with self._changed:
            was_active, self._token, self._epoch = self._token is not None, None, None
        if was_active and self._on_standby is not None:
            self._on_standby()


def choose_writer(members: Sequence[GroupMember]) -> dict[str, Any]:
    """The current writer, if it is still a member. If two members claim to be it, the newer one. Otherwise the first by
    member id."""
    writing = [one for one in members if _token(one) >= 0]
    chosen = max(writing, key=_token) if writing else min(members, key=_by_id)
    return {one.member_id: {"write": one is chosen} for one in members}


def _by_id(member: GroupMember) -> str:
    return member.member_id


def _token(member: GroupMember) -> int:
    """-1 for a member that is not the writer, and for metadata of another format."""
    token = member.metadata.get("token") if isinstance(member.metadata, dict) else None
    return token if isinstance(token, int) else -1
