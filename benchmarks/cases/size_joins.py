"""Members that join one group at once, from a hundred to twenty thousand."""

from __future__ import annotations

import itertools
from typing import Final

from benchmarks import by_size, plots
from benchmarks.by_size import Cost, Shown
from benchmarks.measure import Plan, Result
from benchmarks.members import JOIN_VERSION, join_all, remove_all
from benchmarks.servers import Broker
from benchmarks.tables import Verdict, paragraph

NAME: Final = "size-joins"
UNIT: Final = "members"
COSTS: Final = (
    Cost("server_cpu_s", "joins until the group is stable, CPU time", "server CPU s"),
    Cost("seconds", "joins until the group is stable, elapsed time", "s"),
)
HEARTBEAT_MS: Final = 1000
MESSAGE_MAX_BYTES: Final = 20 * 1024 * 1024
SIZES: Final = (100, 1000, 5000, 20_000)

_NO_DELAY: Final = {"group.initial.rebalance.delay.ms": "0"}
_LARGE_RECORDS: Final = {"message.max.bytes": str(MESSAGE_MAX_BYTES)}
"""A group is one record, in Kafka of at most this size; in Holdfast it can fill a whole segment by default."""
_AT_LEAST: Final = 1000
"""The number of members that join in every round: ten groups of a hundred, one after the other."""
_numbers: Final = itertools.count(1)


def run(plan: Plan) -> Result:
    sizes = by_size.connected(SIZES) if not plan.quick else [20, 100, 400]
    warm_ups = plan.pick(full=3, quick=1)

    def prepare(broker: Broker, members: int) -> None:
        for _ in range(warm_ups):
            _join(broker, min(members, _AT_LEAST))

    def measure(broker: Broker, members: int, _: None) -> dict[str, float]:
        groups = max(1, _AT_LEAST // members) if not plan.quick else 1
        taken = [_join(broker, members) for _ in range(groups)]
        return {name: sum(one[name] for one in taken) / groups for name in taken[0]}

    rows = by_size.take_rounds(plan, sizes, UNIT, _NO_DELAY, prepare, measure, kafka=_LARGE_RECORDS)
    settings = {"sizes": sizes, "unit": UNIT, "warm_ups": warm_ups, "message_max_bytes": MESSAGE_MAX_BYTES}
    return Result(NAME, settings, rows)


def _join(broker: Broker, members: int) -> dict[str, float]:
    group = f"joins-{next(_numbers)}"
    figures = join_all(broker, group, members, HEARTBEAT_MS)
    remove_all(broker, group)
    return figures


_SHOWN: Final = (
    Shown("seconds", "time until stable, s"),
    Shown("generations", "generations"),
    Shown("server_cpu_s", "CPU s"),
    Shown("server_cpu_per_million", "CPU ms per member", 1e-3),
)


def section(result: Result) -> list[str]:
    settings = result.settings
    text = (
        f"Static members (JoinGroup v{JOIN_VERSION}) join one new group at the same time, each on its own connection."
        " As in the section “Groups: many members join at once”, `benchmarks/members.c` simulates the members. They"
        f" send heartbeats every {HEARTBEAT_MS} ms. If a group has fewer than {_AT_LEAST:,} members, each round forms"
        " several groups, one after the other, with that number of members in total. The figures are the mean of these"
        f" groups. Before the first round, {settings['warm_ups']} groups join. These joins are not counted. The CPU"
        " time of the server is measured from the first JoinGroup until the group is stable."
    )
    ratio = Shown("seconds", "time until stable")
    shown = by_size.tables(result, _SHOWN, COSTS, ratio)
    return [
        paragraph(text + by_size.limited(result, max(SIZES)) + by_size.method()),
        "",
        *plots.image(result, COSTS),
        *shown,
    ]


def verdicts(result: Result) -> list[Verdict]:
    return by_size.verdicts(result, COSTS)


def pictures(result: Result) -> dict[str, str]:
    return plots.pictures(result, COSTS)
