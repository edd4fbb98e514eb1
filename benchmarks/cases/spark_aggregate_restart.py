"""A member with much state is restarted: if it is static, no member loads state."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from benchmarks.aggregate_member import AGGREGATE, STATELESS
from benchmarks.aggregate_restart import (
    PATIENCE_S,
    PER_BATCH,
    SESSION_MS,
    Member,
    both,
    counted,
    restarted,
    where_it_ends,
)
from benchmarks.keyed_records import produce_keyed, trickle
from benchmarks.librdkafka import new_topic
from benchmarks.measure import HOLDFAST, Plan, Result, Row, spread
from benchmarks.steady import until
from benchmarks.tables import Target, Verdict, figure, paragraph, table
from tests.support.holdfast_broker import HoldfastBroker

NAME: Final = "spark-aggregate-restart"
STATIC: Final = "static"
DYNAMIC: Final = "dynamic"
PARTITIONS: Final = 12
VALUE_BYTES: Final = 1_000
EACH_TICK: Final = 24
LOAD_TARGET: Final = Target("at most", 0, " bytes")
TIME_TARGET: Final = Target("at most", 2.0)
_SHOWN: Final = (
    ("state loaded by the restarted member, MiB", "own_loaded_bytes", 2**-20),
    ("state loaded by the other member, MiB", "others_loaded_bytes", 2**-20),
    ("time from the start of the query to the end of its first batch, s", "to_first_batch_s", 1.0),
    ("absence of the restarted member, including the start of Spark, s", "away_s", 1.0),
)


def run(plan: Plan) -> Result:
    keys = plan.pick(full=1_000_000, quick=20_000)
    rounds = plan.pick(full=plan.rounds, quick=1)
    rows: list[Row] = []
    with (
        HoldfastBroker() as broker,
        new_topic(broker, PARTITIONS) as topic,
        tempfile.TemporaryDirectory(prefix="restart-") as directory,
    ):
        produce_keyed(broker.bootstrap, topic, PARTITIONS, keys, 0, 0, VALUE_BYTES)
        state = Path(directory) / "state"
        with trickle(broker.bootstrap, topic, PARTITIONS, keys, EACH_TICK, VALUE_BYTES):
            for series in (STATIC, DYNAMIC, STATELESS):
                options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "kafka.group.id": series}
                if series != STATIC:
                    options["startingOffsets"] = where_it_ends(state)
                members = []
                for number in (1, 2):
                    # The query without state is static, like the one that it is compared with.
                    instance_id = {} if series == DYNAMIC else {"kafka.group.instance.id": f"{series}-{number}"}
                    way = STATELESS if series == STATELESS else AGGREGATE
                    members.append(
                        Member(way, {**options, **instance_id}, state, Path(directory) / f"{series}-{number}")
                    )
                with both(*members):
                    until(lambda: counted(state)[0] >= keys, "all keys are counted", PATIENCE_S)
                    for number in range(1, rounds + 1):
                        with plan.attempt(series, HOLDFAST, number):
                            rows.append(Row(series, HOLDFAST, number, restarted(*members)))
        state_bytes = counted(state)[1]
    settings = {
        "keys": keys,
        "value_bytes": VALUE_BYTES,
        "state_bytes": state_bytes,
        "partitions": PARTITIONS,
        "per_batch": PER_BATCH,
        "session_ms": SESSION_MS,
    }
    return Result(NAME, settings, rows)


def section(result: Result) -> list[str]:
    settings = result.settings
    text = (
        f"Two Spark applications with `aggregate` read a topic of {settings['partitions']} partitions and"
        f" {settings['keys']:,} keys in one group. The state contains the totals and the last value of each key. Each"
        f" value has {settings['value_bytes']:,} bytes, and the state has {settings['state_bytes'] / 1e9:.2f} GB."
        " During the benchmark, some keys get new records. In the column “static”, one application restarts with"
        f" `kafka.group.instance.id` and `kafka.session.timeout.ms={settings['session_ms']}`. The column “dynamic” is"
        " the first control, the same restart without an instance id. The column “stateless” is the second control, a"
        " query with an instance id and the same source, but without state. The benchmark completes all restarts of one"
        " column before it begins the next column."
    )
    rows = [
        (
            what,
            *(
                figure([value * scale for value in result.values(series, HOLDFAST, name)])
                for series in (STATIC, DYNAMIC, STATELESS)
            ),
        )
        for what, name, scale in _SHOWN
    ]
    return [paragraph(text), "", *table(("", STATIC, DYNAMIC, STATELESS), rows)]


def verdicts(result: Result) -> list[Verdict]:
    times, alone = (result.by_round(series, HOLDFAST, "to_first_batch_s") for series in (STATIC, STATELESS))
    ratios = [times[number] / alone[number] for number in times if number in alone]
    if not ratios:
        return []
    what = "Spark, restart of a static member with state"
    loaded = result.values(STATIC, HOLDFAST, "others_loaded_bytes")
    return [
        Verdict(f"{what}: state loaded by the other member", LOAD_TARGET, spread(loaded)),
        Verdict(
            f"{what}: time to the end of its first batch ÷ the same time of a query without state",
            TIME_TARGET,
            spread(ratios),
        ),
    ]
