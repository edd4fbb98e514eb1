"""A member of a group, from the first JoinGroup to the last goodbye, as a machine without a world.

It is told what happened (`answered`, `unanswered`, `tick`, and what the application did) and says in `take_effects`
what is to be done. `now` is in milliseconds, of any clock that does not jump. Requests are not sent by whoever notices
that they are needed but by `_send_what_is_due`, which looks at the phase: an answer changes the phase, and the rest
follows from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.membership import answers, failures, requests
from holdfast.membership.answers import Action, described
from holdfast.membership.backoff import Backoff
from holdfast.membership.commits import Commit, Commits, TopicPartition
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
from holdfast.membership.failures import Failure, FailureKind, known_code
from holdfast.membership.phases import HEARTBEATS, NEXT, POLLING, Phase
from holdfast.membership.questions import Outstanding, Question, Ticket
from holdfast.membership.requests import Build, Node, Offset, SyncExtensions
from holdfast.membership.seat import NO_MEMBER_ID, NO_SEAT, Seat
from holdfast.membership.settings import MembershipSettings
from holdfast.wire.apis.sync_group import AssignmentFailure
from holdfast.wire.error_codes import ErrorCode

FIRST_JOIN_WITH_INSTANCE_ID: Final = 5
MOST_FAILURES_IN_A_ROW: Final = 3
"""Of the assignor, with no good generation in between: then others have had their turn, and it is this group's lot."""
LONGEST_FAILURE: Final = 1_000
NEVER: Final = 1 << 62


class Membership:
    def __init__(self, settings: MembershipSettings) -> None:
        self.settings = settings
        self.instance_id = settings.group_instance_id
        self.phase = Phase.OUT
        self.seat = NO_SEAT
        self.is_leader = False
        self.coordinator: Node | None = None
        """Where the coordinator is, once it was reached."""
        self.has_extensions = False
        """Whether the coordinator that was last reached understands what Holdfast says beyond Kafka."""
        self._reaching: Node | None = None
        self._effects: list[Effect] = []
        self._outstanding = Outstanding()
        self._preparations = 0
        self._protocols: Sequence[tuple[str, bytes]] = ()
        self._assignments: Mapping[str, bytes] = {}
        self._report: AssignmentFailure | None = None
        self._gives_up: str | None = None  # why, once the last report is answered
        self._resync_reason = ""
        self._reason = ""
        self._rejoin_wanted = False
        self._leaving: Build | None = None
        self._commits = Commits()
        self._search = Backoff(settings)
        self._joins = Backoff(settings)
        self._assignor = Backoff(settings)
        self._commit_retries = Backoff(settings)
        self._heartbeat_due = NEVER
        self._session_ends = NEVER
        self._poll_ends = NEVER

    # -- what the driver asks ------------------------------------------------------------------------------------------

    def take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def wake_at(self, now: int) -> int:
        """When `tick` is next needed, if nothing happens before."""
        if self.phase is Phase.OVER:
            return NEVER
        times = [self._poll_ends, *(commit.deadline for commit in self._commits.waiting)]
        if self.coordinator is None:
            if self._wants_coordinator() and self._reaching is None and Question.COORDINATOR not in self._outstanding:
                times.append(self._search.until)
        else:
            if self._has_session():
                times.append(self._session_ends)
            if self._may_heartbeat():
                times.append(self._heartbeat_due)
            if self.phase is Phase.JOINING and Question.JOIN not in self._outstanding:
                times.append(max(self._joins.until, self._assignor.until))
            if self.phase is Phase.SYNCING and Question.SYNC not in self._outstanding:
                times.append(self._joins.until)
            if self._commits.waiting and not self._commits.sent:
                times.append(self._commit_retries.until)
        return max(now, min(times))

    def tick(self, now: int) -> None:
        if self.phase is Phase.OVER:
            return
        if now >= self._poll_ends and self.phase in POLLING:
            self._give_up_the_seat("consumer poll timeout has expired.", Phase.AWAY)
        if now >= self._session_ends and self._has_session():
            # Nobody answered for a whole session: if there is a coordinator, it is not where we ask.
            self._forget_coordinator(now)
        for commit in self._commits.take_expired(now):
            self._end_commit_late(commit)
        self._send_what_is_due(now)

    # -- what the application does -------------------------------------------------------------------------------------

    def join(self, now: int) -> None:
        """Become a member, or, as one, join again because what is subscribed to has changed."""
        if self.phase is Phase.OUT:
            self._prepare(now, lost=False)
        else:
            self.rejoin("subscription has changed", now)

    def rejoin(self, reason: str, now: int) -> None:
        """Ask for a rebalance. A join that is already on its way is followed by another one."""
        if not self._reason:
            self._reason = reason
        if self.phase is Phase.STABLE:
            self._prepare(now, lost=False)
        elif self.phase in POLLING:
            self._rejoin_wanted = self.phase is not Phase.PREPARING

    def prepared(self, number: int, protocols: Sequence[tuple[str, bytes]], now: int) -> None:
        """The application has given up what it had to; this is what it says of itself under each protocol."""
        if self.phase is not Phase.PREPARING or number != self._preparations:
            return
        self._protocols = protocols
        self._enter(Phase.JOINING)
        self._send_what_is_due(now)

    def decided(self, generation: int, assignments: Mapping[str, bytes], now: int) -> None:
        """The leader has decided who gets what, or was told to decide nothing."""
        if self.phase is not Phase.LEADING or generation != self.seat.generation:
            return
        self._assignments = assignments
        self._enter(Phase.SYNCING)
        self._send_what_is_due(now)

    def cannot_decide(self, generation: int, message: str) -> None:
        """The assignor failed. A dynamic member leaves, so that somebody else may lead; a static one never does.
        `Left` says that there is nothing to wait for any more."""
        if self.phase is not Phase.LEADING or generation != self.seat.generation:
            self._effects.append(Left())
            return
        self._give_up_leading(message, leaves=self.instance_id is None)

    def report_failure(self, generation: int, fault: int, message: str, now: int) -> None:
        """The assignor failed. A coordinator that understands it is told why; this member joins again, and somebody
        else may lead. Elsewhere, and when it has failed too often in a row, the membership is over."""
        if self.phase is not Phase.LEADING or generation != self.seat.generation:
            return
        self._assignor.failed(now)
        is_last = self._assignor.failures >= MOST_FAILURES_IN_A_ROW
        if not self.has_extensions or (is_last and self.coordinator is None):
            self.cannot_decide(generation, message)
            return
        self._assignments = {}
        self._report = AssignmentFailure(fault, message[:LONGEST_FAILURE])
        self._gives_up = message if is_last else None
        self._enter(Phase.SYNCING)
        self._send_what_is_due(now)

    def _give_up_leading(self, message: str, *, leaves: bool) -> None:
        if leaves:
            self._say_goodbye(self.seat.member_id, "the assignor failed")
        self._fail(Failure(FailureKind.ASSIGNOR, message))
        if Question.LEAVE not in self._outstanding:
            self._effects.append(Left())

    def resync(self, generation: int, epoch: int, grown: Mapping[str, bytes], reason: str, now: int) -> None:
        """The leader adds to the shares of a group that stays as it is: of each member in `grown` this is all that it
        has from now on. Where that cannot be, the group rebalances for the reason given."""
        if self.phase is not Phase.STABLE or generation != self.seat.generation:
            return  # a rebalance is on its way already
        possible = self.is_leader and self.has_extensions and self.coordinator is not None
        if not possible or Question.RESYNC in self._outstanding:
            self.rejoin(reason, now)
            return
        self._resync_reason = reason
        asks = SyncExtensions(resync_from_epoch=epoch)
        resync = requests.sync_group(self.settings, self.seat, self.instance_id, grown, asks)
        self._send(Question.RESYNC, Lane.JOINS, resync)

    def polled(self, now: int) -> None:
        """The application is alive."""
        if self.phase is Phase.AWAY:
            self._prepare(now, lost=True)
        elif self.phase in POLLING:
            self._poll_ends = now + self.settings.max_poll_interval_ms

    def commit(self, offsets: Mapping[TopicPartition, Offset], now: int, timeout_ms: int) -> int:
        """Store offsets; the end is told by `CommitEnded` with the number returned."""
        if self.phase is not Phase.OUT and not self.seat.is_held:
            number = self._commits.number()
            failure = failures.commit_without_a_seat(self.settings.group_id)
            self._effects.append(CommitEnded(number, failure, {}))
            return number
        # Without a subscription the offsets belong to no member: neither generation nor ids are sent.
        seat = self.seat if self.phase is not Phase.OUT else NO_SEAT
        commit = self._commits.add(seat, offsets, now + timeout_ms)
        self._send_what_is_due(now)
        return commit.number

    def leave(self, reason: str, now: int, *, even_if_static: bool = False) -> None:
        """Give up the seat. KIP-345: a static member's seat is kept for its return, unless it says that it means it."""
        if self.phase in (Phase.OUT, Phase.OVER):
            if Question.LEAVE not in self._outstanding:  # else its answer says so
                self._effects.append(Left())
            return
        self._give_up_the_seat(reason, Phase.OUT, even_if_static=even_if_static)
        if self._leaving is None:
            self._effects.append(Left())
        self._send_what_is_due(now)

    def fail(self, failure: Failure) -> None:
        """End it for a reason that only the driver knows: trying again would not help."""
        if self.phase is not Phase.OVER:
            self._fail(failure)

    def close(self) -> None:
        """No more effects are wanted. What is still to be committed or said must be waited for before."""
        if self.phase is Phase.OVER:
            return
        self._end_commits("the consumer was closed before it was answered")
        self._enter(Phase.OVER)
        self._effects.append(HangUp((Lane.JOINS, Lane.SIDE)))

    # -- what the network does -----------------------------------------------------------------------------------------

    def reached(self, join_versions: tuple[int, int], now: int, *, has_extensions: bool = False) -> None:
        """The coordinator is connected, speaks these versions of JoinGroup, and knows Holdfast's extensions or not."""
        if self._reaching is None:
            return
        self.coordinator, self._reaching = self._reaching, None
        self.has_extensions = has_extensions
        if self.instance_id is not None and join_versions[1] < FIRST_JOIN_WITH_INSTANCE_ID:
            if not self.settings.fall_back_to_dynamic:
                address = f"{self.coordinator.host}:{self.coordinator.port}"
                self._fail(failures.no_static_members(self.instance_id, address, join_versions[1]))
                return
            self.instance_id = None
        self._session_ends = now + self.settings.session_timeout_ms
        self._send_what_is_due(now)

    def unreachable(self, now: int) -> None:
        self._reaching = None
        self._search.failed(now)

    def answered(self, ticket: int, response: Any, now: int) -> None:
        asked = self._outstanding.take(ticket)
        if asked is None:
            return
        match asked.question:
            case Question.COORDINATOR:
                self._coordinator_answered(response, now)
            case Question.JOIN:
                self._join_answered(response, now)
            case Question.SYNC:
                self._sync_answered(response, now)
            case Question.RESYNC:
                self._resync_answered(asked.seat, response, now)
            case Question.HEARTBEAT:
                self._heartbeat_answered(asked.seat, response.error_code, now)
            case Question.COMMIT:
                self._commit_answered(asked, response, now)
            case Question.LEAVE:
                self._effects.append(Left())
        self._send_what_is_due(now)

    def unanswered(self, ticket: int, now: int) -> None:
        """The connection broke, or the time for the answer is over."""
        asked = self._outstanding.take(ticket)
        if asked is None:
            return
        match asked.question:
            case Question.COORDINATOR:
                self._search.failed(now)
            case Question.LEAVE:
                self._effects.append(Left())  # said once, heard or not: the session's end says the same
            case Question.SYNC:
                self._sync_unanswered(now)
            case Question.RESYNC:
                self._forget_coordinator(now)
                if self.phase is Phase.STABLE and asked.seat == self.seat:
                    self.rejoin(self._resync_reason, now)
            case Question.COMMIT:
                self._commits.put_back()
                self._commit_retries.failed(now)
                self._forget_coordinator(now)
            case Question.HEARTBEAT:
                self._heartbeat_due = now  # the next coordinator hears of us at once
                self._forget_coordinator(now)
            case Question.JOIN:
                self._forget_coordinator(now)
        self._send_what_is_due(now)

    # -- the coordinator -----------------------------------------------------------------------------------------------

    def _wants_coordinator(self) -> bool:
        busy = self.phase not in (Phase.OUT, Phase.AWAY, Phase.OVER)
        return busy or self._leaving is not None or bool(self._commits.waiting)

    def _coordinator_answered(self, response: Any, now: int) -> None:
        code, node = requests.coordinator_in(response)
        if code == ErrorCode.NONE:
            self._reaching = node
            self._effects.append(Reach(node))
        elif code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            self._search.failed(now)
        else:
            self._refuse("the coordinator could not be found", code)

    def _forget_coordinator(self, now: int) -> None:
        """Look for it anew; the seat is kept."""
        if self.coordinator is None:
            return
        self.coordinator = None
        self._session_ends = NEVER
        self._search.failed(now)
        self._effects.append(HangUp((Lane.JOINS, Lane.SIDE)))

    # -- joining -------------------------------------------------------------------------------------------------------

    def _prepare(self, now: int, *, lost: bool) -> None:
        """Ask the application to give up what it must. Asked again, with `lost`, if the seat goes meanwhile."""
        self._preparations += 1
        self._rejoin_wanted = False
        if self.phase is not Phase.PREPARING:
            self._enter(Phase.PREPARING)
        if self._poll_ends == NEVER:
            self._poll_ends = now + self.settings.max_poll_interval_ms
        self._effects.append(Prepare(self._preparations, lost))

    def _join_answered(self, response: Any, now: int) -> None:
        if self.phase is not Phase.JOINING:
            return
        code = response.error_code
        if code == ErrorCode.NONE:
            self._joined(response, now)
            return
        match answers.JOIN.get(code, Action.FATAL):
            case Action.TAKE_ID:
                if self.seat.member_id != NO_MEMBER_ID or response.member_id == NO_MEMBER_ID:
                    self._joins.failed(now)  # it should not have said so: do not go round in a circle with it
                self._lose_the_seat(Seat(member_id=response.member_id), now)
            case Action.RETRY:
                self._joins.failed(now)
            case Action.REDISCOVER:
                self._forget_coordinator(now)
            case Action.FORGET_MEMBER:
                self._lose_the_seat(NO_SEAT, now)
            case Action.FORGET_GENERATION:
                self._lose_the_seat(self.seat.without_generation(), now)
            case Action.FENCED:
                self._fenced(self.seat)
            case _:
                self._refuse("this member may not join", code)

    def _joined(self, response: Any, now: int) -> None:
        if response.protocol_type is not None and response.protocol_type != self.settings.protocol_type:
            self._refuse("the group is of another protocol type", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return
        protocol = response.protocol_name or ""
        if protocol not in [name for name, _ in self._protocols]:
            self._refuse(f"the group agreed on {protocol!r}", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return
        self._joins.succeeded()
        self.seat = Seat(response.generation_id, response.member_id, protocol)
        self._heard_from_coordinator(now)
        self._heartbeat_due = now + self.settings.heartbeat_interval_ms
        self.is_leader = response.leader == response.member_id
        self._report = self._gives_up = None
        if self.is_leader:
            self._enter(Phase.LEADING)
            skip = response.skip_assignment
            self._effects.append(Lead(response.generation_id, protocol, response.members, skip))
        else:
            self._assignments = {}
            self._enter(Phase.SYNCING)

    def _sync_answered(self, response: Any, now: int) -> None:
        if self.phase is not Phase.SYNCING:
            return
        if self._gives_up is not None:
            # Also a static member leaves: no assignment is kept for its return, and the others would wait for the end
            # of its session.
            self._give_up_leading(self._gives_up, leaves=True)
            return
        code = response.error_code
        if code == ErrorCode.NONE and self._report is None:
            self._synced(response, now)
            return
        if response.failure is not None and not self.is_leader:
            told = response.failure
            self._effects.append(LeaderFailed(self.seat.generation, told.code, told.message))
        if code == ErrorCode.NONE:  # there is no assignment: it was said why
            code = ErrorCode.REBALANCE_IN_PROGRESS
        match answers.SYNC.get(code, Action.FATAL):
            case Action.REJOIN:
                self._enter(Phase.JOINING)
            case Action.RETRY:
                self._joins.failed(now)
            case Action.REDISCOVER:  # Apache Kafka's new coordinator has no generation without an assignment
                self._forget_coordinator(now)
                self._enter(Phase.JOINING)
            case Action.FORGET_MEMBER:
                self._lose_the_seat(NO_SEAT, now)
            case Action.FORGET_GENERATION:
                self._lose_the_seat(self.seat.without_generation(), now)
            case Action.FENCED:
                self._fenced(self.seat)
            case _:
                self._refuse("the coordinator gives this member no assignment", code)

    def _sync_unanswered(self, now: int) -> None:
        """The client-side assignment document, failure steps 3 and 4: the SyncGroup is sent again once the coordinator
        is found, and nobody rejoins. A coordinator that does not know the generation any more refuses it."""
        self._forget_coordinator(now)
        if self.phase is not Phase.SYNCING or self._report is None:
            return
        if self._gives_up is not None:
            self._give_up_leading(self._gives_up, leaves=False)
        else:
            self._enter(Phase.JOINING)  # there is no assignment to wait for

    def _synced(self, response: Any, now: int) -> None:
        seat = self.seat
        expected = (self.settings.protocol_type, seat.protocol)
        found = (response.protocol_type or expected[0], response.protocol_name or expected[1])
        if found != expected:
            self._refuse("the group agreed on another protocol", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return
        self._reason = ""
        self._joins.succeeded()
        self._assignor.succeeded()
        self._heard_from_coordinator(now)
        self._enter(Phase.STABLE)
        self._adopt(response)
        if self._rejoin_wanted:
            self._prepare(now, lost=False)

    def _adopt(self, response: Any, *, quiet: bool = False) -> None:
        seat = self.seat
        epoch = response.assignment_epoch if response.assignment_epoch > requests.NO_EPOCH else None
        protocol, share = seat.protocol or "", response.assignment
        self._effects.append(
            Adopt(seat.generation, seat.member_id, protocol, self.is_leader, share, epoch=epoch, quiet=quiet)
        )

    def _resync_answered(self, seat: Seat, response: Any, now: int) -> None:
        if self.phase is not Phase.STABLE or seat != self.seat:
            return  # it has joined, or will, and hears then what is its own
        code = response.error_code
        if code == ErrorCode.NONE:
            self._adopt(response, quiet=True)
            return
        match answers.SYNC.get(code, Action.REJOIN):
            case Action.FORGET_MEMBER:
                self._lose_the_seat(NO_SEAT, now)
            case Action.FORGET_GENERATION:
                self._lose_the_seat(self.seat.without_generation(), now)
            case Action.FENCED:
                self._fenced(seat)
            case Action.REDISCOVER:
                self._forget_coordinator(now)
                self.rejoin(self._resync_reason, now)
            case _:  # whatever it dislikes, a rebalance mends it
                self.rejoin(self._resync_reason, now)

    # -- living --------------------------------------------------------------------------------------------------------

    def _may_heartbeat(self) -> bool:
        return self.phase in HEARTBEATS and self.seat.is_held and Question.HEARTBEAT not in self._outstanding

    def _has_session(self) -> bool:
        """Whether our heartbeats keep the seat. A parked join keeps it without them."""
        return self.phase in HEARTBEATS and self.seat.is_held and self.coordinator is not None

    def _heard_from_coordinator(self, now: int) -> None:
        self._search.succeeded()
        self._session_ends = now + self.settings.session_timeout_ms

    def _heartbeat_answered(self, seat: Seat, code: int, now: int) -> None:
        action = answers.HEARTBEAT.get(code, Action.FATAL) if code else Action.IGNORE
        if action in answers.STALE_IS_IGNORED and self._is_overtaken(seat):
            return
        match action:
            case Action.IGNORE:
                self._heard_from_coordinator(now)
            case Action.REJOIN:
                self._heard_from_coordinator(now)
                if self.phase is Phase.STABLE and seat == self.seat:  # else it speaks of the rebalance that is over
                    self.rejoin("group is already rebalancing", now)
            case Action.REDISCOVER:
                self._forget_coordinator(now)
            case Action.FORGET_MEMBER:
                self._lose_the_seat(NO_SEAT, now)
            case Action.FORGET_GENERATION:
                self._lose_the_seat(self.seat.without_generation(), now)
            case Action.FENCED:
                self._fenced(seat)
            case _:
                self._refuse("the coordinator no longer has this member", code)

    def _is_overtaken(self, seat: Seat) -> bool:
        """Whether a refusal of what was sent with this seat is no news: we have a newer one, or have asked for it. The
        answer to a join comes on a connection of its own, perhaps later than the refusal which it brought about; if
        there is no seat for us any more, it says the same."""
        return seat != NO_SEAT and (seat != self.seat or Question.JOIN in self._outstanding)

    def _lose_the_seat(self, remains: Seat, now: int) -> None:
        """Start over. What was held may be somebody else's by now, unless nothing had been given yet."""
        held = self.seat.is_held
        self.seat = remains
        self.is_leader = False
        if held or self.phase is not Phase.JOINING:
            self._abandon_join()
            self._reason = self._reason or "the seat was lost"
            self._prepare(now, lost=True)

    # -- committing ----------------------------------------------------------------------------------------------------

    def _commit_answered(self, asked: Ticket, response: Any, now: int) -> None:
        seat = asked.seat
        codes = {
            (topic.name, entry.partition_index): entry.error_code
            for topic in response.topics
            for entry in topic.partitions
            if entry.error_code != ErrorCode.NONE
        }
        actions = {answers.COMMIT.get(code, Action.FAIL): code for code in codes.values()}
        if not actions.keys().isdisjoint(answers.STALE_IS_IGNORED) and self._is_overtaken(seat):
            rebalancing = seat == self.seat
            failure = failures.commit_during_rebalance() if rebalancing else failures.commit_before_rebalance()
            self._end_commits_sent(failure, {})
        elif Action.FENCED in actions:
            self._end_commits_sent(self._fencing(seat), {})
            self._fenced(seat)
        elif not actions.keys().isdisjoint((Action.FORGET_MEMBER, Action.FORGET_GENERATION)):
            self._commit_of_a_stranger(seat, actions, now)
        elif Action.REJOIN in actions:
            self._end_commits_sent(failures.commit_during_rebalance(), {})
            if asked.phase is Phase.STABLE and self.phase is Phase.STABLE and seat == self.seat:
                # Otherwise it speaks of a rebalance in which we take part already: joining once more on its account
                # would be a rebalance of its own, in which the next commit is refused just so.
                self.rejoin("group is already rebalancing", now)
        elif not actions.keys().isdisjoint((Action.RETRY, Action.REDISCOVER)) and not self._commits.topics_are_gone(
            codes.values(), now
        ):
            self._retry_commits(actions, now)
        else:
            self._commit_retries.succeeded()
            errors = {
                where: Failure(FailureKind.COMMIT_REFUSED, described(code), known_code(code))
                for where, code in codes.items()
            }
            self._end_commits_sent(None, errors)

    def _commit_of_a_stranger(self, seat: Seat, actions: Mapping[Action, int], now: int) -> None:
        code = actions.get(Action.FORGET_MEMBER, actions.get(Action.FORGET_GENERATION, 0))
        if seat == NO_SEAT:
            self._end_commits_sent(failures.commit_of_nobody(self.settings.group_id, code), {})
            return
        self._end_commits_sent(failures.commit_of_a_stranger(code), {})
        self._lose_the_seat(NO_SEAT if Action.FORGET_MEMBER in actions else seat.without_generation(), now)

    def _retry_commits(self, actions: Mapping[Action, int], now: int) -> None:
        code = actions.get(Action.RETRY, actions.get(Action.REDISCOVER, 0))
        for commit in self._commits.sent:
            commit.last_error = code
        self._commits.put_back()
        self._commit_retries.failed(now)
        if Action.REDISCOVER in actions:
            self._forget_coordinator(now)

    def _end_commits_sent(self, failure: Failure | None, errors: Mapping[TopicPartition, Failure]) -> None:
        for commit in self._commits.take_sent():
            own = {where: error for where, error in errors.items() if where in commit.offsets}
            self._effects.append(CommitEnded(commit.number, failure, own))

    def _end_commit_late(self, commit: Commit) -> None:
        failure = failures.commit_too_late(self.settings.group_id, commit.last_error)
        self._effects.append(CommitEnded(commit.number, failure, {}))

    def _end_commits(self, message: str) -> None:
        for commit in self._commits.take_all():
            self._effects.append(CommitEnded(commit.number, Failure(FailureKind.NO_LONGER_MEMBER, message), {}))

    # -- going ---------------------------------------------------------------------------------------------------------

    def _give_up_the_seat(self, reason: str, then: Phase, *, even_if_static: bool = False) -> None:
        member_id = self.seat.member_id
        if (self.instance_id is None or even_if_static) and member_id != NO_MEMBER_ID:
            self._say_goodbye(member_id, reason)
        self._abandon_join()
        self.seat = NO_SEAT
        self.is_leader = False
        self._reason = "" if then is Phase.OUT else reason
        self._rejoin_wanted = False
        self._enter(then)
        self._poll_ends = NEVER

    def _abandon_join(self) -> None:
        if Question.JOIN in self._outstanding or Question.SYNC in self._outstanding:
            self._outstanding.forget(Question.JOIN)
            self._outstanding.forget(Question.SYNC)
            self._effects.append(HangUp((Lane.JOINS,)))

    def _say_goodbye(self, member_id: str, reason: str) -> None:
        self._leaving = requests.leave_group(self.settings.group_id, member_id, self.instance_id, reason)

    def _fencing(self, seat: Seat) -> Failure:
        return failures.fencing(self.settings.group_id, self.instance_id, seat.member_id)

    def _fenced(self, seat: Seat) -> None:
        self._fail(self._fencing(seat))

    def _refuse(self, what: str, code: int) -> None:
        self._fail(failures.refusal(self.settings.group_id, what, code))

    def _fail(self, failure: Failure) -> None:
        self._send_goodbye()
        self._end_commits(f"the offsets were not stored: {failure.message}")
        self.seat = NO_SEAT
        self.is_leader = False
        self._enter(Phase.OVER)
        self._effects.append(Failed(failure))

    # -- sending -------------------------------------------------------------------------------------------------------

    def _send_what_is_due(self, now: int) -> None:
        if self.coordinator is None:
            wanted = self._wants_coordinator() and self._reaching is None
            if wanted and Question.COORDINATOR not in self._outstanding and now >= self._search.until:
                self._send(Question.COORDINATOR, Lane.ANY_BROKER, requests.find_coordinator(self.settings.group_id))
            return
        settings, seat, instance_id = self.settings, self.seat, self.instance_id
        self._send_goodbye()
        may_join = self.phase is Phase.JOINING and Question.JOIN not in self._outstanding
        if may_join and now >= max(self._joins.until, self._assignor.until):
            join = requests.join_group(settings, seat, instance_id, self._protocols, self._reason)
            self._send(Question.JOIN, Lane.JOINS, join, settings.join_timeout_ms)
        if self.phase is Phase.SYNCING and Question.SYNC not in self._outstanding and now >= self._joins.until:
            asks = SyncExtensions(failure=self._report) if self.has_extensions else None
            sync = requests.sync_group(settings, seat, instance_id, self._assignments, asks)
            self._send(Question.SYNC, Lane.JOINS, sync, settings.join_timeout_ms)
        if self._may_heartbeat() and now >= self._heartbeat_due:
            self._heartbeat_due = now + settings.heartbeat_interval_ms
            self._send(Question.HEARTBEAT, Lane.SIDE, requests.heartbeat(settings.group_id, seat, instance_id))
        self._send_commits(now)

    def _send_goodbye(self) -> None:
        if self._leaving is not None and self.coordinator is not None and Question.LEAVE not in self._outstanding:
            build, self._leaving = self._leaving, None
            self._send(Question.LEAVE, Lane.SIDE, build)

    def _send_commits(self, now: int) -> None:
        if not self._commits.waiting or self._commits.sent or now < self._commit_retries.until:
            return
        seat, offsets = self._commits.next_batch()
        if seat not in (self.seat, NO_SEAT):
            self._end_commits_sent(failures.commit_before_rebalance(), {})
            self._send_commits(now)
            return
        instance_id = None if seat == NO_SEAT else self.instance_id
        commit = requests.offset_commit(self.settings.group_id, seat, instance_id, offsets)
        self._send(Question.COMMIT, Lane.SIDE, commit, highest=requests.HIGHEST_WITH_TOPIC_NAMES, seat=seat)

    def _send(
        self,
        question: Question,
        lane: Lane,
        build: Build,
        timeout_ms: int | None = None,
        highest: int | None = None,
        seat: Seat | None = None,
    ) -> None:
        ticket = self._outstanding.ask(question, self.seat if seat is None else seat, self.phase)
        timeout_ms = self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        highest = question.api.versions[1] if highest is None else highest
        self._effects.append(Send(ticket.number, lane, question.api, build, timeout_ms, highest))

    def _enter(self, phase: Phase) -> None:
        assert phase in NEXT[self.phase], f"a member that is {self.phase.value} cannot be {phase.value} next"
        self.phase = phase
