"""One server's half of a random run: the participants on their connections, and what they say, also as Python text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from holdfast.wire.apis.describe_groups import DescribedGroup, DescribeGroupsRequest
from holdfast.wire.apis.join_group import JOIN_GROUP
from holdfast.wire.apis.leave_group import MemberIdentity
from holdfast.wire.apis.sync_group import SyncGroupRequestAssignment
from holdfast.wire.message import Api
from tests.broker.wire_client import WireClient
from tests.conformance.member import Member
from tests.conformance.recorder import Recorder, reconnect
from tests.conformance.server import Server
from tests.conformance.steps import OFFERS, Role, Run, Step, Verb
from tests.conformance.versions import ROWS

EVERYWHERE = {"orders": [0, 1, 2], "payments": [0, 1]}
LONG_MS = 60_000
DESCRIBE_VERSION = 5
_IS_NOTE = re.compile(r"(\w+_\d+) = ")


@dataclass(frozen=True, slots=True)
class Pace:
    """How long this run waits. The calm one is for a second look at what differed while much else was going on."""

    quiet_s: float = 0.04
    """Nothing more comes after this long without an answer."""
    in_burst_s: float = 0.02
    rebalance_ms: int = 1200
    session_ms: int = 500
    slack_s: float = 0.4
    patience_s: float = 1.5
    """How long the slower server is waited for."""


HASTE = Pace()
CALM = Pace(quiet_s=0.2, in_burst_s=0.06, rebalance_ms=2400, session_ms=900, slack_s=0.7)


@dataclass(frozen=True, slots=True)
class Received:
    """One answer to one participant; none if the connection was closed."""

    participant: Participant
    request: Any
    answer: Any

    @property
    def is_join(self) -> bool:
        return self.request.API is JOIN_GROUP


class Participant(Member):
    """A member that collects its answers when they come, and knows what it still waits for."""

    def __init__(self, recorder: Recorder, role: Role, run: Run, pace: Pace, suffix: str = "") -> None:
        name = role.name + suffix
        rebalance_ms = pace.rebalance_ms if run.hasty else LONG_MS
        super().__init__(
            recorder,
            name,
            role.instance_id,
            protocols=OFFERS[role.offer],
            session_ms=LONG_MS,
            rebalance_ms=rebalance_ms,
            row=ROWS[role.row],
        )
        self.role = role
        self.open_requests: list[Any] = []
        self.leads = False
        self.short_session_ms = pace.session_ms
        self.may_expire = False
        """Its session is short: it ends when nothing of it is pending any more."""

    @property
    def variable(self) -> str:
        return self.name.lower()

    @property
    def is_busy(self) -> bool:
        return bool(self.open_requests)

    def sends(self, message: Any, version: int | None = None) -> None:
        self.open_requests.append(message)
        super().sends(message, version)

    def requests(self, message: Any, version: int | None = None) -> None:
        """The answer is collected with all others."""
        self.sends(message, version)

    def collects(self) -> Received:
        request = self.open_requests.pop(0)
        try:
            answer = self.takes_response()
        except ConnectionError:
            self.renews_connection()
            return Received(self, request, None)
        self._learn(request.API, answer)
        if request.API is JOIN_GROUP and answer.error_code in (0, 79):
            self.may_expire = request.session_timeout_ms == self.short_session_ms
        return Received(self, request, answer)

    def _learn(self, api: Api, answer: Any) -> None:
        super()._learn(api, answer)
        if api is JOIN_GROUP and answer.error_code == 0:
            self.leads = answer.leader == answer.member_id

    def renews_connection(self) -> None:
        """Nothing that was asked on the old one is waited for any more."""
        reconnect(self, self.recorder.server.address)
        self.open_requests.clear()
        self._pending.clear()

    def impersonates(self, other: Participant) -> None:
        self.member_id, self.generation, self.protocol = other.member_id, other.generation, other.protocol
        self.leads = other.leads


class Side:
    def __init__(self, server: Server, run: Run, pace: Pace, group: str) -> None:
        self.run = run
        self.pace = pace
        self.group = group
        self.recorder = Recorder(server, ROWS[run.admin_row], group)
        self.participants = {role.name: Participant(self.recorder, role, run, pace) for role in run.roles}
        self.seen = DescribedGroup()
        self.script: list[str] = []
        """The run as a scenario would write it."""
        self.ids: list[str] = []
        """Every member id that was ever reported."""
        self._spares: dict[str, Participant] = {}
        self._describer = self.recorder.enter(WireClient(server.address))
        self._closer = Participant(self.recorder, Role("Z", 9), run, pace)

    @property
    def everyone(self) -> list[Participant]:
        return [*self.participants.values(), *self._spares.values(), self._closer]

    # -- looking -------------------------------------------------------------------------------------------------------

    def describe(self) -> str:
        self.seen = self._describer.ask(DescribeGroupsRequest([self.group]), DESCRIBE_VERSION).groups[0]
        return self.described(self.seen)

    def described(self, value: object) -> str:
        return self.recorder.transcript.rendered(value).replace(self.group, "GROUP")

    @property
    def shown_ids(self) -> list[str]:
        """Of those in the group, in the order of their names."""
        return sorted((member.member_id for member in self.seen.members), key=self.described)

    def learns(self, received: Received) -> None:
        member_id = received.answer.member_id if received.is_join and received.answer is not None else ""
        if member_id and received.answer.error_code in (0, 79) and member_id not in self.ids:
            self.ids.append(member_id)
            self.script.append(f"{_noted(self.described(member_id))} = {received.participant.variable}.member_id")

    # -- saying --------------------------------------------------------------------------------------------------------

    def performs(self, step: Step, *, may_be_short: bool) -> Participant | None:
        """Nobody performs what has neither a free connection nor a sender."""
        if step.verb is Verb.FETCH:
            self.script.append(f"recorder.fetches_offsets({EVERYWHERE!r})")
            self.recorder.fetches_offsets(EVERYWHERE)
            return None
        if step.verb is Verb.DESCRIBE:
            self.script.append("recorder.describes()")
            self.recorder.describes()
            return None
        participant = self._speaker(step.who)
        if participant is None:
            return None
        said = dict(step.said)
        if step.verb is Verb.JOIN:
            self._joins(participant, said, may_be_short)
        elif step.verb is Verb.SYNC:
            self._syncs(participant, said)
        elif step.verb is Verb.LEAVE:
            self._leaves(participant, said)
        else:
            self._speaks(participant, step.verb, self._common(participant, said))
        return participant

    def needs_id(self, step: Step) -> bool:
        """A dynamic newcomer is sent away first, with the id to come back with."""
        if step.verb is not Verb.JOIN or {"member_id", "group_instance_id", "no_detour"} & dict(step.said).keys():
            return False
        participant = self.participants[step.who]
        return (
            participant.row.hands_out_ids
            and participant.instance_id is None
            and not participant.member_id
            and not participant.is_busy
        )

    def closes(self) -> Participant:
        """Everybody is taken out, also those who never used their id."""
        wanted = [
            *self.shown_ids,
            *(known for known in sorted(self.ids, key=self.described) if known not in self.shown_ids),
        ]
        self._says_leave(self._closer, [(member_id, None) for member_id in wanted])
        return self._closer

    def _speaker(self, name: str) -> Participant | None:
        """The member itself; while it waits for an answer, somebody who has its identity."""
        participant = self.participants[name]
        if not participant.is_busy:
            return participant
        if name not in self._spares:
            self._spares[name] = Participant(self.recorder, participant.role, self.run, self.pace, suffix="2")
        spare = self._spares[name]
        if spare.is_busy:
            return None
        spare.impersonates(participant)
        fields = ("member_id", "generation", "protocol")
        mine, theirs = (", ".join(f"{who.variable}.{field}" for field in fields) for who in (spare, participant))
        self.script.append(f"{mine} = {theirs}")
        return spare

    def _joins(self, participant: Participant, said: dict[str, Any], may_be_short: bool) -> None:
        offer = said.pop("offer", None)
        is_short = said.pop("short_session", False) and may_be_short
        said.pop("no_detour", None)
        wanted = self._common(participant, said)
        if offer is not None:
            wanted["protocols"] = OFFERS[offer]
        if is_short and not self._keeps_its_old_session(participant, wanted):
            wanted["session_timeout_ms"] = self.pace.session_ms
        self._speaks(participant, Verb.JOIN, wanted)

    def _keeps_its_old_session(self, participant: Participant, wanted: dict[str, Any]) -> bool:
        """Difference 29: in Kafka the length of a session may change only where a join phase ends."""
        member_id = wanted.get("member_id", participant.member_id)
        starts_static = not member_id and wanted.get("group_instance_id", participant.instance_id) is not None
        return starts_static or (member_id in self.shown_ids and self.seen.group_state != "PreparingRebalance")

    def _syncs(self, participant: Participant, said: dict[str, Any]) -> None:
        plan = said.pop("plan", "all" if participant.leads else "none")
        assigned = {member_id: bytes([number]) for number, member_id in enumerate(self.shown_ids, start=1)}
        if plan == "none":
            assigned = {}
        elif plan != "all":
            assigned = {
                who: what for who, what in assigned.items() if (who == participant.member_id) == (plan == "self")
            }
        wanted = self._common(participant, said)
        if assigned:
            wanted["assignments"] = [SyncGroupRequestAssignment(who, what) for who, what in assigned.items()]
        self._speaks(participant, Verb.SYNC, wanted)

    def _leaves(self, participant: Participant, said: dict[str, Any]) -> None:
        if "entries" in said:
            self._says_leave(participant, [(self._id(member_id), instance) for member_id, instance in said["entries"]])
        else:
            self._speaks(participant, Verb.LEAVE, self._common(participant, said))

    def _says_leave(self, participant: Participant, entries: list[tuple[str, str | None]]) -> None:
        self._speaks(participant, Verb.LEAVE, {"members": [MemberIdentity(*entry) for entry in entries]})

    def _common(self, participant: Participant, said: dict[str, Any]) -> dict[str, Any]:
        """Names become ids and generations."""
        wanted = dict(said)
        if "member_id" in wanted:
            wanted["member_id"] = self._id(wanted["member_id"])
        if "generation" in wanted:
            distance = wanted.pop("generation")
            wanted["generation_id"] = -1 if distance is None else participant.generation + distance
        return wanted

    def _id(self, result: str) -> str:
        if result.startswith("@"):
            return self.participants[result[1:]].member_id
        if result.startswith("#"):
            # Those who do not know their id yet have no order that both servers share.
            shown = [member_id for member_id in self.shown_ids if member_id in self.ids]
            return shown[int(result[1:])] if int(result[1:]) < len(shown) else "nobody"
        return result

    def _speaks(self, participant: Participant, verb: Verb, wanted: dict[str, Any]) -> None:
        method = {
            Verb.JOIN: "sends_join_request",
            Verb.SYNC: "sends_sync",
            Verb.BEAT: "beats",
            Verb.LEAVE: "leaves",
            Verb.COMMIT: "commits",
        }[verb]
        if verb is Verb.COMMIT:
            wanted = {
                ("generation_id_or_member_epoch" if key == "generation_id" else key): value
                for key, value in wanted.items()
            }
        positional = [wanted.pop(key) for key in ("offset", "topic") if key in wanted]
        arguments = [repr(value) for value in positional]
        arguments += [f"{key}={self._text(value)}" for key, value in wanted.items()]
        self.script.append(f"{participant.variable}.{method}({', '.join(arguments)})")
        getattr(participant, method)(*positional, **wanted)

    # -- as text -------------------------------------------------------------------------------------------------------

    def _text(self, value: object) -> str:
        if isinstance(value, str):
            owner = next(
                (participant for participant in self.participants.values() if value and participant.member_id == value),
                None,
            )
            if owner is not None:
                return f"{owner.variable}.member_id"
            if value in self.ids:
                return _noted(self.described(value))
            return repr("an unknown member" if self.described(value) == "an unknown member" else value)
        if isinstance(value, list):
            return f"[{', '.join(self._text(element) for element in value)}]"
        if isinstance(value, MemberIdentity):
            return f"MemberIdentity({self._text(value.member_id)}, {value.group_instance_id!r})"
        if isinstance(value, SyncGroupRequestAssignment):
            return f"SyncGroupRequestAssignment({self._text(value.member_id)}, {value.assignment!r})"
        return repr(value)

    def scenario_lines(self) -> list[str]:
        """What was run, without the notes of ids that nobody used."""
        used = [line for line in self.script if not _IS_NOTE.match(line)]
        text = "\n".join(used)
        cast = [
            f"{participant.variable} = {_participants(participant)}"
            for participant in self.everyone
            if f"{participant.variable}." in text
        ]
        return cast + [
            line for line in self.script if (note := _IS_NOTE.match(line)) is None or re.search(rf"\b{note[1]}\b", text)
        ]


def _noted(name: str) -> str:
    return re.sub(r"\W.*", "", name.replace(".", "_", 1)).lower()


def _participants(participant: Participant) -> str:
    """The constructor call with which a scenario has this member."""
    instance = f", {participant.instance_id!r}" if participant.instance_id is not None else ""
    return (
        f"Member(recorder, {participant.name!r}{instance}, protocols={tuple(participant.protocols)!r}, "
        f"session_ms={participant.session_ms}, rebalance_ms={participant.rebalance_ms}, "
        f"row=ROWS[{participant.role.row}])"
    )


__all__ = ["CALM", "HASTE", "Pace", "Participant", "Received", "Side"]
