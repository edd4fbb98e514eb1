"""From a seed: a group of clients of mixed ages, and what they say to it, mostly rightly."""

from __future__ import annotations

from random import Random

from tests.conformance.steps import NOBODY, Role, Run, Said, Step, Verb
from tests.conformance.versions import NAMES_PROTOCOL, STATIC

FIRST_WITH_REBALANCE_TIME_OUT = 1
"""Before, a session's length serves for it, so that it cannot be short."""
INSTANCES = ("i", "j", "k")
BURSTS = (4, 11)
"""How many bursts of steps a run has, at least and at most."""


def generated(seed: int) -> Run:
    random = Random(seed)
    hasty = random.random() < 0.2
    oldest = FIRST_WITH_REBALANCE_TIME_OUT if hasty else 0
    mixed = random.random() < 0.5
    only_row = random.randint(oldest, 9)
    static_share = random.choice((0.0, 0.3, 0.6, 1.0))
    offers = random.choice((("range",), ("range", "both"), ("both",), ("both", "both", "roundrobin")))
    roles = []
    for name in "ABCDE"[: random.choice((2, 3, 3, 4, 4, 5))]:
        row = random.randint(oldest, 9) if mixed else only_row
        instance = random.choice(INSTANCES) if row >= STATIC and random.random() < static_share else None
        roles.append(Role(name, row, instance, random.choice(offers)))
    return _Generator(random, tuple(roles), hasty).generate(seed)


class _Generator:
    def __init__(self, random: Random, roles: tuple[Role, ...], hasty: bool) -> None:
        self._random = random
        self._roles = roles
        self._hasty = hasty

    def generate(self, seed: int) -> Run:
        steps: list[Step] = []
        for _ in range(self._random.randint(*BURSTS)):
            steps += self._burst()
        return Run(seed, self._roles, tuple(steps), self._hasty, self._random.randint(0, 9))

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def _burst(self) -> list[Step]:
        writers = (self._round, self._joins, self._syncs, self._beat, self._leave, self._removal, self._commit)
        weights = (34, 14, 8, 14, 6, 4, 12)
        (write,) = self._random.choices((*writers, self._looks), (*weights, 8))
        return write()

    # -- several at once -----------------------------------------------------------------------------------------------

    def _round(self) -> list[Step]:
        """Some or all join, then some or all of them sync."""
        joiners = self._some(0.85)
        joins = [Step(Verb.JOIN, role.name, self._join_said(role, 0.12), at_once=True) for role in joiners]
        syncs = [
            Step(Verb.SYNC, role.name, self._sync_said(role, 0.08), at_once=True)
            for role in self._random.sample(joiners, len(joiners))
            if self._chance(0.9)
        ]
        return self._ends([*joins[:-1], Step(Verb.JOIN, joins[-1].who, joins[-1].said, self._hasty), *syncs])

    def _joins(self) -> list[Step]:
        return self._ends([Step(Verb.JOIN, role.name, self._join_said(role, 0.6), True) for role in self._some(0.3)])

    def _syncs(self) -> list[Step]:
        return self._ends([Step(Verb.SYNC, role.name, self._sync_said(role, 0.5), True) for role in self._some(0.4)])

    def _some(self, probability: float) -> list[Role]:
        chosen = [role for role in self._roles if self._chance(probability)] or [self._random.choice(self._roles)]
        return self._random.sample(chosen, len(chosen))

    @staticmethod
    def _ends(steps: list[Step]) -> list[Step]:
        last = steps[-1]
        return [*steps[:-1], Step(last.verb, last.who, last.said)]

    # -- one alone -----------------------------------------------------------------------------------------------------

    def _beat(self) -> list[Step]:
        role = self._random.choice(self._roles)
        return [Step(Verb.BEAT, role.name, self._identity(role, 0.3) + self._generation(0.3))]

    def _commit(self) -> list[Step]:
        role = self._random.choice(self._roles)
        said: Said = (("offset", self._random.randint(0, 99)), ("topic", self._random.choice(("orders", "payments"))))
        if self._chance(0.25):  # as one who assigns its partitions itself
            said += (("member_id", ""), ("generation", None))
            said += (("group_instance_id", None),) if role.instance_id else ()
        else:
            said += self._identity(role, 0.3) + self._generation(0.3)
        return [Step(Verb.COMMIT, role.name, said)]

    def _leave(self) -> list[Step]:
        role = self._random.choice(self._roles)
        if role.row < STATIC:
            return [Step(Verb.LEAVE, role.name, self._identity(role, 0.3))]
        if self._chance(0.6):
            return [Step(Verb.LEAVE, role.name)]
        entries = tuple(self._entry() for _ in range(self._random.randint(0, 3)))
        return [Step(Verb.LEAVE, role.name, (("entries", entries),))]

    def _entry(self) -> tuple[str, str | None]:
        """Member id and instance id, which need not belong together."""
        member_id = self._random.choice(("", NOBODY, *(f"@{role.name}" for role in self._roles)))
        return member_id, self._random.choice((None, None, NOBODY, *INSTANCES))

    def _removal(self) -> list[Step]:
        """By an administrator who takes from the list of members."""
        who = self._random.choice([role.name for role in self._roles if role.row >= STATIC] or [""])
        if not who:
            return self._leave()
        picked = self._random.sample(range(4), self._random.randint(1, 2))
        return [Step(Verb.LEAVE, who, (("entries", tuple((f"#{number}", None) for number in picked)),))]

    def _looks(self) -> list[Step]:
        return [Step(self._random.choice((Verb.FETCH, Verb.DESCRIBE)), "admin")]

    # -- what is said wrongly ------------------------------------------------------------------------------------------

    def _join_said(self, role: Role, probability: float) -> Said:
        said: Said = ()
        if self._chance(probability):
            said += (("offer", self._random.choice(("range", "range changed", "both", "both changed", "roundrobin"))),)
        if self._chance(probability / 8):
            said += (("offer", "neither"),) if not said else ()
        if self._chance(probability / 4):
            said += self._wrong_identity(role)
        if self._chance(probability / 12):
            said += (("protocol_type", self._random.choice(("connect", ""))),)
        if self._chance(probability / 6):
            said += (("short_session", True),)
        if self._chance(probability / 3):
            said += (("no_detour", True),)
        return said

    def _sync_said(self, role: Role, probability: float) -> Said:
        said = self._identity(role, probability / 2) + self._generation(probability / 2)
        if self._chance(probability / 3):
            said += (("plan", self._random.choice(("all", "none", "self", "others"))),)
        if role.row >= NAMES_PROTOCOL and self._chance(probability / 3):
            said += ((self._random.choice(("protocol_name", "protocol_type")), self._random.choice(("connect", None))),)
        return said

    def _generation(self, probability: float) -> Said:
        return (("generation", self._random.choice((-1, 1, None))),) if self._chance(probability) else ()

    def _identity(self, role: Role, probability: float) -> Said:
        return self._wrong_identity(role) if self._chance(probability) else ()

    def _wrong_identity(self, role: Role) -> Said:
        ids = ("", NOBODY, *(f"@{other.name}" for other in self._roles if other is not role))
        member_id = (("member_id", self._random.choice(ids)),)
        if role.row < STATIC or self._chance(0.6):
            return member_id
        instance = (("group_instance_id", self._random.choice((None, NOBODY, *INSTANCES))),)
        return instance if self._chance(0.5) else member_id + instance
