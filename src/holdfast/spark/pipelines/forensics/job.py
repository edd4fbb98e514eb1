"""The Spark job: read both topics, thin the commits out, put the facts of each group together, follow the groups."""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from holdfast.client.errors import ConfigError, GroupError, HoldfastError, TopicError
from holdfast.client.network import Network
from holdfast.coordinator.ledger import LEDGER_TOPIC
from holdfast.spark.options import KAFKA, batch_options
from holdfast.spark.pipelines.forensics.facts import FACTS, OFFSETS_TOPIC
from holdfast.spark.pipelines.forensics.out import PAGE_FILE, REPORT_FILE, checked, keep_only, staged
from holdfast.spark.pipelines.forensics.rules import Rules
from holdfast.spark.range_consumers import consumer_config
from holdfast.wire.group_records import partition_for

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.spark.pipelines.forensics.report import Report

Batches = Callable[[Iterator["pyarrow.RecordBatch"]], Iterator["pyarrow.RecordBatch"]]
Source = Literal["auto", "ledger", "offsets"]
SOURCES: Final = ("auto", "ledger", "offsets")

_NOTHING: Final = (
    "CAST(NULL AS STRING) AS topic",
    "CAST(NULL AS INT) AS partition",
    "CAST(NULL AS BIGINT) AS before",
    "CAST(NULL AS BIGINT) AS after",
)
_TASKS_PER_CORE: Final = 2
"""Groups differ in size: with some tasks to spare, no core waits for the last one for long."""


class JobFailed(HoldfastError):
    """Spark has ended the job; the message is what it said, without its stack."""


def forensics(
    spark: SparkSession,
    out: str | os.PathLike[str],
    options: Mapping[str, Any],
    groups: Collection[str] = (),
    *,
    source: Source = "auto",
    rules: Rules | None = None,
    ledger_topic: str = LEDGER_TOPIC,
    offsets_topic: str = OFFSETS_TOPIC,
) -> Report:
    """What happened to these groups, or to all, as tables, a page and figures in the directory `out`.

    `options` are the client's, as the source has them: `kafka.bootstrap.servers` and what else it takes to be let in.
    The topics have other names where they were copied.
    """
    given = rules or Rules()
    check(out, options, source, given)
    return _Job(spark, checked(out), options, frozenset(groups), given, (ledger_topic, offsets_topic)).run(source)


def check(out: str | os.PathLike[str], options: Mapping[str, Any], source: str, rules: Rules) -> None:
    """Raises ConfigError for what cannot be, before anything is read."""
    checked(out)
    if source not in SOURCES:
        raise ConfigError(f"source is {source!r}; it can be {', '.join(SOURCES)}")
    for name in options:
        if not name.lower().startswith(KAFKA):
            raise ConfigError(f"option {name!r} is not for forensics: what is read, it knows; give {KAFKA}* only")
    batch_options({**{name: str(value) for name, value in options.items()}, "subscribe": OFFSETS_TOPIC})
    if rules.since_ms is not None and rules.until_ms is not None and rules.since_ms >= rules.until_ms:
        raise ConfigError("the time to look at ends before it begins: see since and until")


class _Job:
    def __init__(
        self,
        spark: SparkSession,
        out: Path,
        options: Mapping[str, Any],
        groups: frozenset[str],
        rules: Rules,
        topics: tuple[str, str],
    ) -> None:
        self._spark = spark
        self._out = out
        self._options = {name: str(value) for name, value in options.items()}
        self._groups = groups
        self._rules = rules
        self._ledger, self._offsets = topics

    def run(self, source: Source) -> Report:
        there = self._partitions()
        read = self._chosen(source, there)
        with staged(self._out) as directory:
            return self._told(directory, self._collected(self._followed(self._facts(read, there), directory)), read)

    @staticmethod
    def _collected(reports: DataFrame) -> list[Any]:
        from pyspark.errors import PySparkException

        try:
            return reports.collect()
        except PySparkException as error:
            raise JobFailed(sentence(str(error))) from error

    # -- what there is -------------------------------------------------------------------------------------------------

    def _partitions(self) -> dict[str, int]:
        """Of both topics, as far as they are there."""
        kafka = {name.lower().removeprefix(KAFKA): value for name, value in self._options.items()}
        config = consumer_config(kafka)
        wanted = (self._ledger, self._offsets)
        with Network(config.network) as network:
            found = network.metadata(wanted, time.monotonic() + config.api_timeout_ms / 1000)
        for topic, code in found.errors.items():
            if "AUTHORIZATION" in code.name:
                found.topic(topic)  # raises
        return {topic: found.topics[topic].partitions for topic in wanted if topic in found.topics}

    def _chosen(self, source: Source, there: Mapping[str, int]) -> list[str]:
        wanted = {"auto": [self._ledger, self._offsets], "ledger": [self._ledger], "offsets": [self._offsets]}[source]
        chosen = [topic for topic in wanted if topic in there]
        if chosen:
            return chosen
        if source == "ledger":
            raise TopicError(
                f"there is no {self._ledger}: Apache Kafka keeps none; read what it has by source `offsets`"
            )
        raise TopicError(f"there is no {' and no '.join(wanted)}: no consumer group has ever been here")

    # -- the facts -----------------------------------------------------------------------------------------------------

    def _facts(self, read: Collection[str], there: Mapping[str, int]) -> DataFrame:
        parts = []
        if self._ledger in read:
            parts.append(self._events())
        if self._offsets in read:
            parts.append(self._stored(there[self._offsets]))
        facts = parts[0]
        for more in parts[1:]:
            facts = facts.unionAll(more)
        return facts

    def _events(self) -> DataFrame:
        # They are sorted later, so the one partition can be read by several tasks.
        rows = self._read(subscribe=self._ledger, minPartitions=str(self._cores()))
        if self._groups:
            from pyspark.sql import functions as f

            rows = rows.where(f.col("key").cast("string").isin(sorted(self._groups)))
        return rows.selectExpr(
            # Anybody may write to the topic: Spark takes any bytes for a STRING, and Python would not read it.
            "COALESCE(make_valid_utf8(CAST(key AS STRING)), '') AS group_id",
            "unix_millis(timestamp) AS at_ms",
            "offset AS place",
            "1 AS kind",
            "value AS body",
            *_NOTHING,
        )

    def _stored(self, partitions: int) -> DataFrame:
        """Each partition by one task, in its order: `thinning` needs that."""
        if self._groups:
            numbers = sorted({partition_for(group, partitions) for group in self._groups})
            rows = self._read(assign=json.dumps({self._offsets: numbers}))
        else:
            rows = self._read(subscribe=self._offsets)
        columns = rows.selectExpr("key", "value", "unix_millis(timestamp) AS at_ms", "offset")
        return columns.mapInArrow(_thinning(self._groups or None), FACTS)

    def _read(self, **what: str) -> DataFrame:
        """As of now. What retention takes away meanwhile is no error: history begins where it begins."""
        reader = self._spark.read.format("holdfast").options(**self._options, **what, failOnDataLoss="false")
        rows = reader.load()
        until_ms = self._rules.until_ms
        return rows if until_ms is None else rows.where(f"unix_millis(timestamp) <= {until_ms}")

    # -- the groups ----------------------------------------------------------------------------------------------------

    def _followed(self, facts: DataFrame, directory: Path) -> DataFrame:
        from pyspark.sql import functions as f

        from holdfast.spark.pipelines.forensics.executing import REPORT

        return (
            facts.repartition(self._cores() * _TASKS_PER_CORE, "group_id")
            # Of one millisecond the ledger's first; of one topic by their offsets.
            .sortWithinPartitions("group_id", "at_ms", f.expr("kind > 1"), "place")
            .mapInArrow(_following(str(directory), self._rules), REPORT)
        )

    def _cores(self) -> int:
        try:
            return max(1, self._spark.sparkContext.defaultParallelism)
        except AttributeError:  # Spark Connect has no context
            return int(self._spark.conf.get("spark.sql.shuffle.partitions") or 200) // _TASKS_PER_CORE or 1

    # -- what came out -------------------------------------------------------------------------------------------------

    def _told(self, directory: Path, reports: Collection[Any], read: Collection[str]) -> Report:
        from holdfast.spark.pipelines.forensics.report import html, summarise

        unread: Counter[str] = Counter()
        files: set[str] = set()
        for one in reports:
            if one.problem is not None:
                raise OSError(one.errno, one.problem)
            unread.update(json.loads(one.unread))
            files.update(json.loads(one.files))
        keep_only(directory, files)
        window = (self._rules.since_ms, self._rules.until_ms)
        report = summarise(directory, self._out, [*read], unread, self._groups, window)
        self._check_groups(report)
        (directory / PAGE_FILE).write_text(html(directory, report), "utf-8")
        (directory / REPORT_FILE).write_text(json.dumps(report.to_json(), ensure_ascii=True, indent=1) + "\n")
        return report

    def _check_groups(self, report: Report) -> None:
        missing = sorted(self._groups - {row["group_id"] for row in report.shown})
        if missing:
            names = ", ".join(repr(name) for name in missing)
            raise GroupError(
                f"{' and '.join(report.sources)} tell of no group {names}: see its name (`holdfast groups list`), and "
                "whether its history is still kept"
            )


def sentence(said: str) -> str:
    """What a task failed with, out of the stack that Spark puts around it."""
    ours = re.findall(r"^\s*(?:pyspark\S+: )?holdfast\.[\w.]+: (.+)$", said, re.MULTILINE)
    first = next((line.strip() for line in said.splitlines() if line.strip()), "it does not say why")
    return f"Spark could not finish the job: {ours[-1] if ours else first}"


def _thinning(groups: frozenset[str] | None) -> Batches:
    def thinned(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        from holdfast.spark.pipelines.forensics.executing import thin

        return thin(batches, groups)

    return thinned


def _following(directory: str, rules: Rules) -> Batches:
    def followed(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        from holdfast.spark.pipelines.forensics.executing import follow

        return follow(batches, directory, rules)

    return followed
