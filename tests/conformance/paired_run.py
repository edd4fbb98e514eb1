"""A random run on both servers at once, step by step.

Neither goes on before the other: a step ends when both have answered the same members and nothing more comes. So what
the members know is the same on both sides, and a server that is merely slower is waited for. Time matters only where
a step awaits the end of a timeout, and then nothing else happens.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

from holdfast.wire.apis.join_group import JOIN_GROUP
from holdfast.wire.apis.sync_group import SYNC_GROUP
from tests.conformance import known_differences
from tests.conformance.known_differences import Explanation
from tests.conformance.server import Server
from tests.conformance.side import HASTE, Pace, Participant, Received, Side
from tests.conformance.steps import CHANGES_THE_GROUP, Run, Step, Verb

MAX_DELAY_S = 4.0
MAX_TIMEOUTS = 3
UNBEGUN = ("Empty", "Dead", "")
PREPARING = "PreparingRebalance"


@dataclass(slots=True)
class Result:
    run: Run
    steps: int = 0
    listed: set[int] = field(default_factory=set)
    by_chance: bool = False
    """It ended early, with another leader on each side."""
    difference: list[str] = field(default_factory=list)
    """What has no explanation; - is Kafka, + is Holdfast."""
    script: list[str] = field(default_factory=list)


class Ended(Exception):
    """Nothing can be compared any more."""


def run_paired(run: Run, kafka: Server, holdfast: Server, group: str, pace: Pace = HASTE) -> Result:
    return PairedRun(run, kafka, holdfast, group, pace).result()


class PairedRun:
    def __init__(self, run: Run, kafka: Server, holdfast: Server, group: str, pace: Pace) -> None:
        self._run = run
        self._pace = pace
        self._kafka, self._holdfast = (Side(server, run, pace, group) for server in (kafka, holdfast))
        self._sides = (self._kafka, self._holdfast)
        self._result = Result(run)
        self._received: tuple[list[Received], list[Received]] = ([], [])
        """In this step."""
        self._written = [0, 0]
        self._before = self._kafka.seen
        self._sender: Participant | None = None
        self._sent: object = None
        self._leader = ""
        self._in_initial_delay = False
        self._burst_began_preparing = False
        self._absent = False
        """Whether a static member slept through the last join phase."""
        self._replaced = False
        """Whether a static member was replaced before everybody had synced, or may have been."""

    def result(self) -> Result:
        with ExitStack() as recorders:
            for side in self._sides:
                recorders.enter_context(side.recorder)
            try:
                self._compare()
                self._run_steps()
                self._end()
            except Ended:
                pass
        self._result.script = self._kafka.scenario_lines()
        return self._result

    def _run_steps(self) -> None:
        begins = True
        for number, step in enumerate(self._run.steps):
            if begins:
                self._burst_began_preparing = PREPARING in self._states()
            at_once = step.at_once and number + 1 < len(self._run.steps)
            begins = not at_once or (self._run.hasty and self._burst_began_preparing)
            if self._kafka.needs_id(step):
                self._act(step, last=False)
            self._act(step, last=begins)
            self._result.steps += 1
            if at_once and self._in_initial_delay and self._run.steps[number + 1].verb is not Verb.JOIN:
                self._sender = self._sent = None
                self._await_initial_delay()
                self._compare()

    def _end(self) -> None:
        """Everybody leaves, and every request must have had its answer."""
        self._before = self._kafka.seen
        self._sender = self._kafka.closes()
        self._holdfast.closes()
        self._sent = self._sender.open_requests[-1]
        self._settle(self._pace.quiet_s, must_answer=True)
        self._compare()
        for participant in self._holdfast.everyone:
            if participant.is_busy:
                self._different(
                    [f"+{participant.name} never receives of its {type(participant.open_requests[0]).__name__}"]
                )

    # -- one step ------------------------------------------------------------------------------------------------------

    def _act(self, step: Step, *, last: bool) -> None:
        if step.verb is Verb.JOIN and any(state in UNBEGUN for state in self._states()):
            self._in_initial_delay = True
        self._before = self._kafka.seen
        may_be_short = not self._run.hasty and not self._in_initial_delay
        self._sender, other = (side.performs(step, may_be_short=may_be_short) for side in self._sides)
        assert (self._sender is None) == (other is None), "the members of the two sides do not know the same"
        self._sent = self._sender.open_requests[-1] if self._sender is not None else None
        parks = step.verb in (Verb.JOIN, Verb.SYNC)
        quiet_s = self._pace.quiet_s if last else self._pace.in_burst_s
        if self._sender is not None:
            self._settle(quiet_s if step.verb in CHANGES_THE_GROUP else 0, must_answer=not parks)
            self._await_dying()
            if last:
                self._await_time_outs(step)
        self._compare()

    def _await_dying(self) -> None:
        """A member with a short session is gone before anything else happens."""
        if any(one.participant.may_expire and one.request.API in (JOIN_GROUP, SYNC_GROUP) for one in self._received[0]):
            self._pass(self._pace.session_ms / 1000 + self._pace.slack_s)

    def _await_initial_delay(self) -> None:
        """Any member that wants to join in it has joined."""
        if self._in_initial_delay:
            deadline = time.monotonic() + MAX_DELAY_S
            while time.monotonic() < deadline and PREPARING in self._described():
                self._settle(self._pace.in_burst_s)
            self._in_initial_delay = False
            self._settle(self._pace.quiet_s)

    def _await_time_outs(self, step: Step) -> None:
        self._await_initial_delay()
        if self._run.hasty and step.verb in CHANGES_THE_GROUP:
            for _ in range(MAX_TIMEOUTS):
                before = (self._described(), sum(map(len, self._received)))
                if all(state in UNBEGUN for state in before[0]):
                    return
                self._pass(self._pace.rebalance_ms / 1000 + self._pace.slack_s)
                if (self._described(), sum(map(len, self._received))) == before:
                    return

    # -- hearing -------------------------------------------------------------------------------------------------------

    def _pass(self, seconds: float) -> None:
        """All of this time, whatever is received."""
        self._kafka.script.append(f"recorder.waits({seconds:.1f})")
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._collect(left)
        self._settle(self._pace.in_burst_s)

    def _settle(self, quiet_s: float, *, must_answer: bool = False) -> None:
        """Until both sides have received the same members and nothing more comes."""
        news_at = time.monotonic()
        while any(True for _ in self._pending()):
            waited = time.monotonic() - news_at
            is_even = self._who(0) == self._who(1) and not (must_answer and self._is_asking())
            enough_s = quiet_s if is_even else self._pace.patience_s
            if waited >= enough_s:
                return
            if self._collect(enough_s - waited):
                news_at = time.monotonic()

    def _pending(self) -> Iterator[tuple[int, Participant]]:
        return (
            (number, participant)
            for number, side in enumerate(self._sides)
            for participant in side.everyone
            if participant.is_busy
        )

    def _is_asking(self) -> bool:
        return any(participant.name == (self._sender and self._sender.name) for _, participant in self._pending())

    def _who(self, side: int) -> list[str]:
        return sorted(received.participant.name for received in self._received[side])

    def _collect(self, within_s: float) -> bool:
        waiting = {participant.socket: (number, participant) for number, participant in self._pending()}
        if not waiting:
            time.sleep(within_s)
            return False
        ready = select.select(list(waiting), [], [], within_s)[0]
        for one in ready:
            number, participant = waiting[one]
            received = participant.collects()
            self._received[number].append(received)
        return bool(ready)

    # -- comparing -----------------------------------------------------------------------------------------------------

    def _states(self) -> list[str]:
        return [side.seen.group_state for side in self._sides]

    def _described(self) -> list[str]:
        for side in self._sides:
            side.describe()
        return self._states()

    def _compare(self) -> None:
        """What was received in this step, and the group after it."""
        self._write_down()
        kafka, holdfast = (side.describe() for side in self._sides)
        self._note_absences()
        self._compare_answers()
        self._compare_groups(kafka, holdfast)
        joins = [
            received
            for received in self._received[0]
            if received.is_join and received.answer and received.answer.error_code == 0
        ]
        if joins:
            self._leader = self._kafka.described(joins[0].answer.leader)
        for received in self._received:
            received.clear()

    def _write_down(self) -> None:
        """Into the scenario: who receives now, and who does not."""
        sender = self._sender
        names = sorted({received.participant.variable for side in self._received for received in side})
        asks_itself = type(self._sent).__name__ not in ("JoinGroupRequest", "SyncGroupRequest")
        for name in names:
            if not (sender is not None and sender.variable == name and asks_itself):
                self._kafka.script.append(f"{name}.receives()")
        if sender is not None and sender.variable not in names and not asks_itself:
            self._kafka.script.append(f"{sender.variable}.is_pending()")
        for received in self._received[0]:
            self._kafka.learns(received)
        for received in self._received[1]:
            self._holdfast.learns(received)

    def _note_absences(self) -> None:
        joined = [
            received
            for received in self._received[0]
            if received.is_join and received.answer and received.answer.error_code == 0
        ]
        present = {received.answer.member_id for received in joined}
        lists = [received.answer.members for received in joined if received.answer.members]
        if lists and joined[0].answer.generation_id > 0:
            self._absent = any(member.member_id not in present for member in lists[0])
            self._replaced = False
        if any(
            not received.request.member_id and received.request.group_instance_id is not None for received in joined
        ):
            self._replaced = True

    def _compare_answers(self) -> None:
        kafka, holdfast = (self._lines(number) for number in (0, 1))
        if kafka == holdfast:
            return
        differing = sorted(name for name in kafka.keys() | holdfast.keys() if kafka.get(name) != holdfast.get(name))
        explanations = [self._explained(name, kafka.get(name, []), holdfast.get(name, [])) for name in differing]
        if None not in explanations:
            self._take(explanations)
            return
        flat = [[line for name in differing for line in side.get(name, [])] for side in (kafka, holdfast)]
        joined = {
            side.described(received.answer.member_id)
            for side, all_received in zip(self._sides, self._received, strict=True)
            for received in all_received
            if received.is_join and received.answer is not None
        }
        why = self._explained_by_the_step() or known_differences.by_chance(self._leader, joined, flat[0], flat[1])
        if why is None:
            self._different([f"-{line}" for line in flat[0]] + [f"+{line}" for line in flat[1]])
        self._take([why])

    def _lines(self, number: int) -> dict[str, list[str]]:
        """What each received, in this step."""
        side = self._sides[number]
        lines: dict[str, list[str]] = {}
        for received in self._received[number]:
            what = "a closed connection" if received.answer is None else side.described(received.answer)
            lines.setdefault(received.participant.name, []).append(
                f"{received.participant.name} receives {received.request.API.name}: {what}"
            )
        transcript = side.recorder.transcript.lines
        if new := transcript[self._written[number] :]:
            lines["admin"] = [line.replace(side.group, "GROUP") for line in new]
            self._written[number] = len(transcript)
        return lines

    def _explained(self, name: str, kafka: list[str], holdfast: list[str]) -> Explanation | None:
        if len(kafka) == len(holdfast) == 1:
            return known_differences.of_text(kafka[0], holdfast[0])
        if not kafka and len(holdfast) == 1:
            received = next(received for received in self._received[1] if received.participant.name == name)
            why = known_differences.of_silence(self._kafka, received, self._other(self._sent))
            if why is not None:
                next(
                    participant for participant in self._kafka.everyone if participant.name == name
                ).renews_connection()
            return why
        return None

    def _other(self, sent: object) -> object:
        """Holdfast's half of what was said in this step."""
        if self._sender is None:
            return sent
        for received in self._received[1]:
            if received.participant.name == self._sender.name:
                return received.request
        twin = next(participant for participant in self._holdfast.everyone if participant.name == self._sender.name)
        return twin.open_requests[-1] if twin.is_busy else sent

    def _compare_groups(self, kafka: str, holdfast: str) -> None:
        """As DescribeGroups shows them; the slower one is waited for."""
        deadline = time.monotonic() + self._pace.patience_s
        while (
            (why := known_differences.of_text(kafka, holdfast)) is None
            and kafka != holdfast
            and time.monotonic() < deadline
        ):
            time.sleep(0.02)
            kafka, holdfast = (side.describe() for side in self._sides)
        if kafka == holdfast:
            return
        why = why or self._explained_by_the_step()
        if why is None:
            self._kafka.script.append("recorder.describes()")
            self._different([f"-{kafka}", f"+{holdfast}"])
        self._take([why])

    def _explained_by_the_step(self) -> Explanation | None:
        """Whatever differs after it."""
        speaks = self._sender.name if self._sender is not None else ""
        kafka, holdfast = (
            next((one for one in received if one.participant.name == speaks), None) for received in self._received
        )
        if kafka is not None and (why := known_differences.of_unused_id(kafka, self._before)):
            return why
        if why := known_differences.of_empty_id(kafka, holdfast):
            return why
        return known_differences.of_full_group(kafka, holdfast, self._before) or self._sync_timer()

    def _sync_timer(self) -> Explanation | None:
        """Kafka's drops members that were away, or that have another id by now."""
        if self._run.hasty and (self._absent or self._replaced):
            return Explanation(17 if self._absent else 18, goes_on=False)
        return None

    def _take(self, explanations: list[Explanation | None]) -> None:
        for why in explanations:
            if why is None:
                continue
            if why.number:
                self._result.listed.add(why.number)
            if not why.goes_on:
                self._result.by_chance = self._result.by_chance or why is known_differences.CHANCE
                raise Ended

    def _different(self, lines: list[str]) -> None:
        self._result.difference = lines
        raise Ended
