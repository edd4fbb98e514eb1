"""The seats of a query in its group. Each is a member with a thread of its own, which takes part in rebalances at once,
however long Spark's batches and triggers are."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from holdfast.client.commits import Commits
from holdfast.client.consumer_config import ConsumerConfig
from holdfast.client.errors import ConnectionFailed, HoldfastError
from holdfast.client.join_desk import JoinDesk
from holdfast.client.network import Network
from holdfast.client.participation import Participation
from holdfast.client.topics import Topics
from holdfast.membership.effects import CommitEnded
from holdfast.spark.holdings import Holdings
from holdfast.spark.offsets import Where

TURN_S: Final = 0.2
COMMIT_TIMEOUT_MS: Final = 5_000
GOODBYE_S: Final = 2.0

Begin = Callable[[Network, list[Where], float], Mapping[Where, int]]
"""Where to begin what the group has no offset for."""

logger = logging.getLogger("holdfast.spark")


class Seat:
    """One member. `settled` is changed under the condition that all seats of a query share."""

    def __init__(
        self,
        number: int,
        config: ConsumerConfig,
        holdings: Holdings,
        begin: Begin,
        revoke_timeout_s: float,
        changed: threading.Condition,
    ) -> None:
        self.settled = False
        """Whether the group has given this seat its share, and does not want another one."""
        self.failure: HoldfastError | None = None
        self.trouble: HoldfastError | None = None
        """Why the coordinator has not been reached yet."""
        self._number = number
        self._holdings = holdings
        # Never more than half of the time that the group waits for its members.
        self._revoke_timeout_s = min(revoke_timeout_s, config.membership.max_poll_interval_ms / 2000)
        self._changed = changed
        self._storing = threading.Lock()
        """Held while offsets are stored: a partition does not go between the look who has it and the group's answer."""
        self._unstored: set[Where] = set()
        self._begin = begin
        self._group = Participation(config, self, begin=self._begin_unknown, follows_the_group=True)
        self._commits = Commits(self._group.driver)
        self._stopping = False
        self._thread = threading.Thread(target=self._live, name=f"holdfast-seat-{number}", daemon=True)

    # -- for Spark's thread --------------------------------------------------------------------------------------------

    def join_through(self, desk: JoinDesk) -> None:
        """Before `join`: together with the others who were given this desk, where the broker can do that."""
        self._group.join_through(desk)

    def join(self, topics: Topics) -> None:
        self._group.subscribe(topics)
        self._thread.start()

    def polled(self) -> None:
        """Spark has come by."""
        if self._group.driver.is_away:  # it came too late: what was held may be somebody else's
            self._unsettle()
            self._holdings.lose(self._number)
        self._group.driver.polled()

    def _to_store(self) -> Mapping[Where, int]:
        return self._holdings.to_store().get(self._number, {})

    def store(self, wanted: Callable[[], Mapping[Where, int]] | None = None) -> None:
        """Tell the group how far this seat's partitions are, or those that are `wanted`. What cannot be stored now is
        tried again later, if the partitions are still held then."""
        with self._storing:
            offsets = (wanted or self._to_store)()
            if not offsets:
                return
            try:
                refused = self._commits.wait_for(
                    {where: (offset, None, -1) for where, offset in offsets.items()}, COMMIT_TIMEOUT_MS
                )
            except HoldfastError as error:
                logger.warning("the offsets of a batch were not stored: %s", error)
                return
        for where, why in refused.items():
            logger.warning("the offset of %s-%s was not stored: %s", *where, why)
        self._holdings.store({where: offset for where, offset in offsets.items() if where not in refused})

    def close(self, *, leave: bool) -> None:
        """A dynamic member leaves the group; a static one keeps its seat, unless it is told to `leave`."""
        self._stopping = True
        self._holdings.free()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(GOODBYE_S)
        if self.failure is None and not self._thread.is_alive():
            self._group.leave("the query has ended", time.monotonic() + GOODBYE_S, even_if_static=leave)
        self._group.close()

    # -- the seat's own thread -----------------------------------------------------------------------------------------

    def _live(self) -> None:
        while not self._stopping:
            try:
                self._group.attend(polled=False)
            except HoldfastError as error:
                if not isinstance(error, ConnectionFailed) or error.fatal:
                    self._fail(error)
                    return
                logger.warning("%s", error)
                with self._changed:
                    self.trouble = error
                    self._changed.notify_all()
            except Exception as error:
                logger.exception("the thread of a seat failed")
                self._fail(HoldfastError(f"the seat ended by a fault of its own: {type(error).__name__}: {error}"))
                return
            self._group.driver.wait_for_event(TURN_S)

    def _fail(self, error: HoldfastError) -> None:
        self._holdings.lose(self._number)
        with self._changed:
            self.failure = error
            self._changed.notify_all()

    def _unsettle(self) -> None:
        with self._changed:
            self.settled = False

    # -- what the group does; called by the participation --------------------------------------------------------------

    def rejoining(self, staying: Collection[Where], within_ms: int) -> None:  # noqa: ARG002 - nothing goes
        self._unsettle()

    def giving_up(self, partitions: Collection[Where], within_ms: int) -> None:
        """Wait for the batch in flight; Spark's thread stores what it did before it lets go of them."""
        self._unsettle()
        self._let_go_of_batch(partitions, within_ms)
        # Also where a partition began, if that is not stored yet: its next owner must not begin elsewhere.
        self.store(lambda: {where: at for where, at in self._to_store().items() if where in partitions})

    def _let_go_of_batch(self, partitions: Collection[Where], within_ms: int) -> None:
        timeout_s = 0.0 if self._stopping else min(self._revoke_timeout_s, within_ms / 1000)
        if not self._holdings.wait_until_free(partitions, time.monotonic() + timeout_s) and not self._stopping:
            logger.warning(
                "%d partitions go although a batch still reads them, after %s s (revokeTimeout): their next owner "
                "reads again what this batch reads of them",
                len(partitions),
                timeout_s,
            )

    def revoked(self, partitions: list[Where]) -> None:
        with self._storing:
            self._holdings.lose(self._number, partitions)

    def lost(self, partitions: list[Where]) -> None:
        self._unsettle()
        with self._storing:
            self._holdings.lose(self._number, partitions)

    def assigned(self, offsets: Mapping[Where, int]) -> None:
        unstored = self._unstored & offsets.keys()
        self._unstored -= unstored
        self._holdings.gain(self._number, offsets, unstored)
        if unstored:
            self._store_beginnings({where: offsets[where] for where in unstored})
        with self._changed:
            self.settled, self.trouble = True, None
            self._changed.notify_all()

    def _begin_unknown(self, unknown: list[Where], deadline: float) -> Mapping[Where, int]:
        beginnings = self._begin(self._group.network, unknown, deadline)
        self._unstored.update(beginnings)
        return beginnings

    def _store_beginnings(self, offsets: Mapping[Where, int]) -> None:
        """Whoever gets them next begins there too: `latest` means the end of the topic when the query began."""

        def ended(end: CommitEnded) -> None:
            if end.failure is None:
                self._holdings.store({where: offset for where, offset in offsets.items() if where not in end.errors})

        self._group.driver.commit(
            {where: (offset, None, -1) for where, offset in offsets.items()}, COMMIT_TIMEOUT_MS, ended
        )


class Seats:
    def __init__(
        self, configs: Sequence[ConsumerConfig], holdings: Holdings, begin: Begin, revoke_timeout_s: float
    ) -> None:
        self._changed = threading.Condition()
        self._seats = [
            Seat(number, config, holdings, begin, revoke_timeout_s, self._changed)
            for number, config in enumerate(configs)
        ]
        if len(configs) > 1:
            desk = JoinDesk(len(configs))
            for seat in self._seats:
                seat.join_through(desk)

    def join(self, topics: Topics) -> None:
        for seat in self._seats:
            seat.join(topics)

    def polled(self) -> None:
        for seat in self._seats:
            seat.polled()
        self.check()

    def check(self) -> None:
        """Raises what a seat failed with."""
        for seat in self._seats:
            if seat.failure is not None:
                raise seat.failure

    def wait_until_settled(self, timeout_s: float) -> bool:
        """Until every seat has its share. Raises what a seat failed with, or why the group cannot be reached."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not all(seat.settled for seat in self._seats):
                self.check()
                for seat in self._seats:
                    if seat.trouble is not None:
                        raise seat.trouble
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(min(left, TURN_S))
        return True

    def store(self) -> None:
        """Tell the group how far the query is."""
        for seat in self._seats:
            seat.store()

    def close(self, *, leave: bool = False) -> None:
        closers = [threading.Thread(target=seat.close, kwargs={"leave": leave}, daemon=True) for seat in self._seats]
        for closer in closers:
            closer.start()
        for closer in closers:
            closer.join(2 * GOODBYE_S)
