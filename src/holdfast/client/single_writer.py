"""`SingleWriter`: one process writes, the others stand by, and each writer has a token by which a store can tell.

    with SingleWriter({"bootstrap.servers": "localhost:9092", "group.id": "ledger-writer"}) as writer:
        token = writer.wait_until_active()
        store.write(row, token=token)      # refuses tokens lower than the highest it has seen

The token is the generation in which this process became the writer. Every change of writer takes a new generation, and
generations only rise, so a writer that was paused and replaced meanwhile comes back with a lower token than its
successor's: a store that checks refuses it. That is also why the writer joins as a dynamic member: a static one would
get its seat back without a new generation. Without a store that checks, a paused writer may write once too often.

Holdfast never lets a group's generation go back. Apache Kafka forgets a group that nobody has joined for long, and
begins again at 1: a store that has seen higher tokens would refuse every writer then, which is safe but must be mended
by hand.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from holdfast.client.errors import ConfigError, HoldfastError, RequestTimedOut
from holdfast.client.member import GroupMember, Member, MemberState

PROTOCOL_TYPE: Final = "holdfast-writer"
PROTOCOL: Final = "writer-v1"


class SingleWriter:
    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        on_active: Callable[[int], None] | None = None,
        on_standby: Callable[[], None] | None = None,
    ) -> None:
        if config.get("group.instance.id"):
            raise ConfigError(
                "SingleWriter takes no group.instance.id: a static member gets its seat back without a new generation, "
                "and its token would not move when the writer does"
            )
        self._on_active = on_active
        self._on_standby = on_standby
        self._changed = threading.Condition()
        self._token: int | None = None
        self._epoch: int | None = None
        self._closing = False
        self._member = Member(
            config, PROTOCOL_TYPE, self._say, choose_writer, on_assignment=self._adopt, on_revoked=self._revoked
        )

    @property
    def token(self) -> int | None:
        """The fencing token while this process is the writer; None while it stands by. Raises what ended it."""
        _ = self._member.current
        with self._changed:
            return self._token

    @property
    def assignment_epoch(self) -> int | None:
        """The assignment epoch in which this process became the writer: of one kind with that of a `Consumer`, for a
        store that both write to. None while it stands by, and where the broker has no epochs, as Apache Kafka."""
        _ = self._member.current
        with self._changed:
            return self._epoch

    @property
    def is_active(self) -> bool:
        return self.token is not None

    def wait_until_active(self, timeout: float | None = None) -> int:
        """Stand by until this process is the writer; returns its token."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            token = self.token
            if token is not None:
                return token
            with self._changed:
                if self._closing:
                    raise HoldfastError("the writer is closed")
                if self._token is None:
                    self._changed.wait(0.2 if deadline is None else min(0.2, max(0.0, deadline - time.monotonic())))
            if timeout is not None and deadline is not None and time.monotonic() >= deadline and self.token is None:
                if self._member.current is None:  # nobody has said who writes
                    raise self._member.gave_nothing_within(timeout)
                raise RequestTimedOut(f"another process has been the writer for {timeout} s")

    def start(self) -> Self:
        self._member.start()
        return self

    def close(self) -> None:
        """Stop writing, and let the next one in at once."""
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

    def _say(self) -> Mapping[str, Any]:
        with self._changed:
            return {PROTOCOL: {"token": self._token}}

    def _revoked(self, lost: bool) -> None:
        if lost:
            self._stand_by()

    def _adopt(self, adopted: MemberState) -> None:
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
    """The writer there is, if it is still here; of two who think so, the newer. Otherwise the first by its id."""
    writing = [one for one in members if _token(one) >= 0]
    chosen = max(writing, key=_token) if writing else min(members, key=_by_id)
    return {one.member_id: {"write": one is chosen} for one in members}


def _by_id(member: GroupMember) -> str:
    return member.member_id


def _token(member: GroupMember) -> int:
    """-1 for one that stands by, and for one that says something else than writers do."""
    token = member.metadata.get("token") if isinstance(member.metadata, dict) else None
    return token if isinstance(token, int) else -1
