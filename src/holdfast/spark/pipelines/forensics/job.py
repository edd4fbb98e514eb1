"""The Spark job: read both topics, filter the commits, combine the records of each group, analyze the groups."""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.errors import ConfigError, GroupError, HoldfastError, TopicError
from holdfast.client.runtime import SYSTEM
from holdfast.coordinator.events.group_event import LEDGER_TOPIC
from holdfast.spark.executor_consumers import consumer_config
from holdfast.spark.first_contact import reach_a_broker
from holdfast.spark.options import KAFKA, batch_options
from holdfast.spark.pipelines.forensics.records import OFFSETS_TOPIC, RECORD_COLUMNS
from holdfast.spark.pipelines.forensics.report_dir import PAGE_FILE, REPORT_FILE, checked_path, keep_only, staged
from holdfast.spark.pipelines.forensics.thresholds import ForensicsThresholds
from holdfast.wire.group_records import partition_for

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.spark.pipelines.forensics.report import Report

MapArrow = Callable[[Iterator["pyarrow.RecordBatch"]], Iterator["pyarrow.RecordBatch"]]
Source = Literal["auto", "ledger", "offsets"]
SOURCES: Final = ("auto", "ledger", "offsets")

_NOTHING: Final = (
    "CAST(NULL AS STRING) AS topic",
    "CAST(NULL AS INT) AS partition",
    "CAST(NULL AS BIGINT) AS before",
    "CAST(NULL AS BIGINT) AS after",
)
_TASKS_PER_CORE: Final = 2
"""Groups differ in size: with more tasks than cores, no core waits for long."""


class JobFailed(HoldfastError):
    """Spark has ended the job; the message is Spark's, without the stack trace."""


def forensics(
    spark: SparkSession,
    out: str | os.PathLike[str],
    options: Mapping[str, Any],
    groups: Collection[str] = (),
    *,
    source: Source = "auto",
    thresholds: ForensicsThresholds | None = None,
    ledger_topic: str = LEDGER_TOPIC,
    offsets_topic: str = OFFSETS_TOPIC,
) -> Report:
    """Analyzes these groups, or all, and writes tables, a page and figures to the directory `out`.

    `options` are those of the client, as in the source: `kafka.bootstrap.servers` and the security settings. Give other
    names of the topics if they were copied.
    """
    given = thresholds or ForensicsThresholds()
    check(out, options, source, given)
    return _Job(spark, checked_path(out), options, frozenset(groups), given, (ledger_topic, offsets_topic)).run(source)


def check(
    out: str | os.PathLike[str], options: Mapping[str, Any], source: str, thresholds: ForensicsThresholds
) -> None:
    """Raises ConfigError for invalid arguments, before anything is read."""
    checked_path(out)
    if source not in SOURCES:
        raise ConfigError(f"source is {source!r}; it can be {', '.join(SOURCES)}")
    for name in options:
        if not name.lower().startswith(KAFKA):
            raise ConfigError(
                f"option {name!r} is not for forensics, which selects the topics itself; give {KAFKA}* only"
            )
    batch_options({**{name: str(value) for name, value in options.items()}, "subscribe": OFFSETS_TOPIC})
    if (
        thresholds.since_ms is not None
        and thresholds.until_ms is not None
        and thresholds.since_ms >= thresholds.until_ms
    ):
        raise ConfigError("the time window ends before it begins: see since and until")


class _Job:
    def __init__(
        self,
        spark: SparkSession,
        out: Path,
        options: Mapping[str, Any],
        groups: frozenset[str],
        rules: ForensicsThresholds,
        topics: tuple[str, str],
    ) -> None:
        self._spark = spark
        self._out = out
        self._options = {name: str(value) for name, value in options.items()}
        self._groups = groups
        self._thresholds = rules
        self._ledger, self._offsets = topics

    def run(self, source: Source) -> Report:
        there = self._partitions()
        read = self._topics_to_read(source, there)
        with staged(self._out) as directory:
            return self._write_report(
                directory, self._collected(self._analyzed(self._records(read, there), directory)), read
            )

    @staticmethod
    def _collected(reports: DataFrame) -> list[Any]:
        from pyspark.errors import PySparkException

        try:
            return reports.collect()
        except PySparkException as error:
            raise JobFailed(spark_error_text(str(error))) from error

    # -- topics --------------------------------------------------------------------------------------------------------

    def _partitions(self) -> dict[str, int]:
        """The number of partitions of both topics, if they exist."""
        kafka = {name.lower().removeprefix(KAFKA): value for name, value in self._options.items()}
        config = consumer_config(kafka)
        wanted = (self._ledger, self._offsets)
        with ClusterClient(config.network, runtime=SYSTEM) as network:
            reach_a_broker(network, kafka)
            found = network.metadata(wanted, time.monotonic() + config.api_timeout_ms / 1000)
        for topic, code in found.errors.items():
            if "AUTHORIZATION" in code.name:
                found.topic(topic)  # raises
        return {topic: found.topics[topic].partitions for topic in wanted if topic in found.topics}

    def _topics_to_read(self, source: Source, there: Mapping[str, int]) -> list[str]:
        wanted = {"auto": [self._ledger, self._offsets], "ledger": [self._ledger], "offsets": [self._offsets]}[source]
        chosen = [topic for topic in wanted if topic in there]
        if chosen:
            return chosen
        if source == "ledger":
            raise TopicError(f"there is no {self._ledger}: Apache Kafka has no ledger; use the source `offsets`")
        raise TopicError(f"there is no {' and no '.join(wanted)}: this cluster has never had a consumer group")

    # -- records -------------------------------------------------------------------------------------------------------

    def _records(self, read: Collection[str], there: Mapping[str, int]) -> DataFrame:
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
        # The events are sorted later, so several tasks can read the one partition.
        rows = self._read(subscribe=self._ledger, minPartitions=str(self._cores()))
        if self._groups:
            from pyspark.sql import functions as f

            rows = rows.where(f.col("key").cast("string").isin(sorted(self._groups)))
        return rows.selectExpr(
            # Any client may write to the topic: Spark accepts any bytes as a STRING, but Python cannot decode them.
            "COALESCE(make_valid_utf8(CAST(key AS STRING)), '') AS group_id",
            "unix_millis(timestamp) AS at_ms",
            "offset",
            "1 AS kind",
            "value AS body",
            *_NOTHING,
        )

    def _stored(self, partitions: int) -> DataFrame:
        """Each partition is read by one task, in order, as `commit_filter` requires."""
        if self._groups:
            numbers = sorted({partition_for(group, partitions) for group in self._groups})
            rows = self._read(assign=json.dumps({self._offsets: numbers}))
        else:
            rows = self._read(subscribe=self._offsets)
        columns = rows.selectExpr("key", "value", "unix_millis(timestamp) AS at_ms", "offset")
        return columns.mapInArrow(_filter_commits_on_executor(self._groups or None), RECORD_COLUMNS)

    def _read(self, **what: str) -> DataFrame:
        """Up to the current end. Records that retention deletes meanwhile are not an error."""
        reader = self._spark.read.format("holdfast").options(**self._options, **what, failOnDataLoss="false")
        rows = reader.load()
        until_ms = self._thresholds.until_ms
        return rows if until_ms is None else rows.where(f"unix_millis(timestamp) <= {until_ms}")

    # -- groups --------------------------------------------------------------------------------------------------------

    def _analyzed(self, facts: DataFrame, directory: Path) -> DataFrame:
        from pyspark.sql import functions as f

        from holdfast.spark.pipelines.forensics.spark_tasks import REPORT

        return (
            facts.repartition(self._cores() * _TASKS_PER_CORE, "group_id")
            # Within a millisecond, events of the ledger first; records of one topic by offset.
            .sortWithinPartitions("group_id", "at_ms", f.expr("kind > 1"), "offset")
            .mapInArrow(_analyze_on_executor(str(directory), self._thresholds), REPORT)
        )

    def _cores(self) -> int:
        try:
            return max(1, self._spark.sparkContext.defaultParallelism)
        except AttributeError:  # Spark Connect has no context
            return int(self._spark.conf.get("spark.sql.shuffle.partitions") or 200) // _TASKS_PER_CORE or 1

    # -- the report ----------------------------------------------------------------------------------------------------

    def _write_report(self, directory: Path, reports: Collection[Any], read: Collection[str]) -> Report:
        from holdfast.spark.pipelines.forensics.delta_tables import commit_tables
        from holdfast.spark.pipelines.forensics.report import html, summarise

        unread: Counter[str] = Counter()
        files: set[str] = set()
        for one in reports:
            if one.problem is not None:
                raise OSError(one.errno, one.problem)
            unread.update(json.loads(one.unread))
            files.update(json.loads(one.files))
        keep_only(directory, files)
        commit_tables(directory)
        window = (self._thresholds.since_ms, self._thresholds.until_ms)
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
                f"{' and '.join(report.sources)} have no records of group {names}: check its name (`holdfast groups "
                "list`), and whether its history was deleted"
            )


def spark_error_text(error: str) -> str:
    """The error of a task, extracted from Spark's stack trace."""
    ours = re.findall(r"^\s*(?:pyspark\S+: )?holdfast\.[\w.]+: (.+)$", error, re.MULTILINE)
    first = next((line.strip() for line in error.splitlines() if line.strip()), "it does not say why")
    return f"Spark could not finish the job: {ours[-1] if ours else first}"


def _filter_commits_on_executor(groups: frozenset[str] | None) -> MapArrow:
    def thinned(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        from holdfast.spark.pipelines.forensics.spark_tasks import filter_commits

        return filter_commits(batches, groups)

    return thinned


def _analyze_on_executor(directory: str, rules: ForensicsThresholds) -> MapArrow:
    def followed(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        from holdfast.spark.pipelines.forensics.spark_tasks import analyze

        return analyze(batches, directory, rules)

    return followed
