"""`forensics` over histories of several lengths: the cost of a million events, and of ten times as many."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from benchmarks import group_histories
from benchmarks.group_histories import History
from benchmarks.librdkafka import new_topic
from benchmarks.measure import HOLDFAST, Plan, Result, Row, Spread, alternating, spread
from benchmarks.servers import Broker, settle
from benchmarks.spark_process import SparkProcess, reported
from benchmarks.tables import Target, Verdict, figure, paragraph, table
from tests.support.holdfast_broker import HoldfastBroker

NAME: Final = "spark-forensics"
TARGET: Final = Target("at most", 11.0)
CORES: Final = 2
GROUPS: Final = 1_000
START, ONE, TEN, GIANT = "start-up", "1 M", "10 M", "1 M, one group"
_PATIENCE_S: Final = 1_800.0


def run(plan: Plan) -> Result:
    million = plan.pick(full=1_000_000, quick=200_000)
    groups = plan.pick(full=GROUPS, quick=50)
    histories = {
        START: group_histories.history(groups * group_histories.PER_REBALANCE, groups),
        ONE: group_histories.history(million, groups),
        GIANT: group_histories.history(million, 1),
        TEN: group_histories.history(10 * million, groups),
    }
    rows: list[Row] = []
    with HoldfastBroker() as broker, SparkProcess(CORES, own_source=False) as spark, ExitStack() as stack:
        topics = {}
        for series, history in histories.items():
            ledger = stack.enter_context(new_topic(broker, 1))
            offsets = stack.enter_context(new_topic(broker, group_histories.OFFSETS_PARTITIONS))
            group_histories.produce(history, broker.bootstrap, ledger, offsets)
            topics[series] = (ledger, offsets)
        for number in range(plan.rounds + 1):
            for series in alternating(histories, number):
                if not number and series == TEN:
                    continue  # the warm-up lets Java compile the code, for which a short history is enough
                settle()
                with plan.attempt(series, HOLDFAST, number):
                    figures = _round(spark, broker, histories[series], *topics[series])
                    if number:
                        rows.append(Row(series, HOLDFAST, number, figures))
        versions = spark.versions
    settings = {
        "events": {series: history.events for series, history in histories.items()},
        "groups": groups,
        "commits": group_histories.COMMITS,
        "per_rebalance": group_histories.PER_REBALANCE,
        "cores": CORES,
        "versions": versions,
    }
    return Result(NAME, settings, rows)


def _round(spark: SparkProcess, broker: Broker, history: History, ledger: str, offsets: str) -> dict[str, float]:
    figures: dict[str, float] = spark.ask(
        "forensics",
        _PATIENCE_S,
        bootstrap=broker.bootstrap,
        ledger=ledger,
        offsets=offsets,
        events=history.events,
        groups=history.groups,
        rebalances=history.rebalances,
    )
    return figures


def section(result: Result) -> list[str]:
    head = (
        "history",
        "events",
        "time, s",
        "events/s",
        "CPU s per million events",
        "CPU s of the Python workers per million events",
        "size of the report, bytes",
    )
    rows = [
        (
            series,
            f"{result.settings['events'][series]:,}",
            figure(result.values(series, HOLDFAST, "seconds")),
            figure(result.values(series, HOLDFAST, "events_per_s")),
            figure(result.values(series, HOLDFAST, "cpu_per_million")),
            figure(result.values(series, HOLDFAST, "workers_cpu_per_million")),
            figure(result.values(series, HOLDFAST, "report_bytes")),
        )
        for series in (START, ONE, GIANT, TEN)
    ]
    return [paragraph(_method(result)), "", *table(head, rows)]


def _method(result: Result) -> str:
    settings = result.settings
    return (
        "`holdfast.spark.forensics` reads a copy of the ledger and a copy of `__consumer_offsets` from a Holdfast"
        f" broker. The copies contain {settings['groups']:,} groups, in which the members leave and rejoin one after"
        f" the other. Of every {settings['per_rebalance']} records, {settings['commits']} are commits. The time is"
        " measured from the start of the job to the report, in one Spark application with"
        f" `local[{settings['cores']}]`. One warm-up round is not counted. In the stored rounds, the histories were"
        " measured one after the other. In new rounds, the histories take turns. The first history has one rebalance"
        " for each group. Its time counts as the startup time. Comparisons between histories subtract the startup time."
        " One task analyzes one group, so one very large group uses only one core. Versions:"
        f" {reported(settings['versions'])}."
    )


def growth(result: Result) -> Spread | None:
    """How many times longer ten times as many events take, without the start-up."""
    start = result.values(START, HOLDFAST, "seconds")
    one, ten = result.values(ONE, HOLDFAST, "seconds"), result.values(TEN, HOLDFAST, "seconds")
    ratios = [(c - a) / (b - a) for a, b, c in zip(start, one, ten, strict=False) if b > a]
    return spread(ratios) if ratios else None


def verdicts(result: Result) -> list[Verdict]:
    measured = growth(result)
    return (
        [] if measured is None else [Verdict("Spark, forensics: time for 10 M events ÷ 1 M events", TARGET, measured)]
    )
