"""Latency, whole topics, compactions and memory over time: what these cases make of what they see."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.cases import compaction_pause, latency_rate, long_fetch, soak
from benchmarks.cases.compaction_pause import compacted_to
from benchmarks.measure import HOLDFAST, KAFKA, Result, Row, growth


@pytest.mark.parametrize(
    ("samples", "grown"),
    [
        ([100, 100, 40, 40, 40, 40, 40, 40], 1.0),  # the warm-up does not count
        ([10, 20, 30, 40, 50, 60, 70, 80], 75 / 35),
        ([40, 40, 40, 40, 40, 40, 40, 400, 40, 40, 40, 40], 1.0),  # neither does one sample
    ],
)
def test_growth_is_that_of_the_last_quarter_over_the_second(samples: list[float], grown: float) -> None:
    assert growth(samples) == pytest.approx(grown)


def test_growth_of_a_few_samples_is_not_known() -> None:
    with pytest.raises(ValueError, match="3 samples"):
        growth([1.0, 2.0, 3.0])


def test_a_compaction_is_over_when_the_broker_has_noted_it(tmp_path: Path) -> None:
    broker = SimpleNamespace(data_dir=tmp_path)
    assert compacted_to(broker, "orders") == 0

    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n2\norders 0 4711\nprices 0 12\n")

    assert compacted_to(broker, "orders") == 4711
    assert compacted_to(broker, "parcels") == 0


def test_a_latency_above_that_of_kafka_is_no_met_target() -> None:
    settings = {"rate": 1000, "seconds": 15, "record_bytes": 100}
    settings |= {"warm_up_rate": 4000, "warm_up_seconds": 45, "max_wait_ms": 500}
    ours, theirs = {"trip_p50_ms": 0.4, "trip_p99_ms": 3.0}, {"trip_p50_ms": 0.5, "trip_p99_ms": 2.0}
    rows = [Row(latency_rate.SERIES, HOLDFAST, 1, ours), Row(latency_rate.SERIES, KAFKA, 1, theirs)]
    result = Result(latency_rate.NAME, settings, rows)

    p50, p99 = latency_rate.verdicts(result)

    assert (p50.what, p50.met) == ("1,000 records/s, due time to consumption: p50 ÷ Kafka", True)
    assert (p99.what, p99.met) == ("1,000 records/s, due time to consumption: p99 ÷ Kafka", False)
    assert "| due time to consumption, p99 ms | 3.00 [3.00 – 3.00] | 2.00" in "\n".join(latency_rate.section(result))


def test_a_slower_read_than_that_of_kafka_is_no_met_target() -> None:
    settings = {"records": {"1 kB, 1 partition": 1_000_000}, "gigabytes": 1.0, "warm_ups": 10}
    settings |= {"fetch_max_bytes": 52_428_800, "max_partition_fetch_bytes": 1_048_576}
    rows = [
        Row("1 kB, 1 partition", HOLDFAST, 1, {"mb_per_s": 900.0}),
        Row("1 kB, 1 partition", KAFKA, 1, {"mb_per_s": 1000.0}),
    ]

    (verdict,) = long_fetch.verdicts(Result(long_fetch.NAME, settings, rows))

    assert (verdict.what, verdict.met) == ("1 GB read completely, 1 kB, 1 partition: MB/s ÷ Kafka", False)


def test_memory_that_grows_is_no_met_target() -> None:
    grown = {"rss_mib_growth": 1.2, "open_files_growth": 1.0, "threads_growth": 1.0}
    result = Result(soak.NAME, {"seconds": 600}, [Row(soak.SERIES, HOLDFAST, 1, grown)])

    assert [verdict.met for verdict in soak.verdicts(result)] == [False, True, True]


def test_the_page_shows_a_compaction_beside_the_same_load_without() -> None:
    settings = {"records": 1_000_000, "record_bytes": 1000, "times_each_key": 10, "segments": 10, "rate": 1000}
    settings |= {"warm_up_rate": 4000, "warm_up_seconds": 20}
    rows = [
        Row(compaction_pause.COMPACTED, HOLDFAST, 1, {"trip_max_ms": 20.0}),
        Row(compaction_pause.COMPACTED, KAFKA, 1, {"trip_max_ms": 10.0}),
        Row(compaction_pause.QUIET, HOLDFAST, 1, {"trip_max_ms": 5.0}),
    ]

    page = "\n".join(compaction_pause.section(Result(compaction_pause.NAME, settings, rows)))

    assert "| while it is compacted: longest time until consumption, ms | 20.0 [20.0 – 20.0] | 10.0" in page
    assert "**2.00×**" in page
    assert "| the same load without: longest time until consumption, ms | 5.00 [5.00 – 5.00] | – | – |" in page
