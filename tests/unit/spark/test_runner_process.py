"""Nothing is left behind: not by a query that is stopped, nor by one whose Spark is gone."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from holdfast.spark import runner_process
from holdfast.spark.options import stream_options
from holdfast.spark.stream_reader import StreamReader
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.quick_brokers import QUICK
from tests.support.spark_engine import QueryFailed
from tests.support.spark_harness import SparkHarness

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "g", "subscribe": "t"}
KEPT = {"kafka.session.timeout.ms": "180000"}
MEMBER = KEPT | {"kafka.group.instance.id": "spark-1"}


@pytest.mark.parametrize("end", ["stopped", "Spark is gone"])
def test_a_member_without_a_name_leaves_at_once(world: SparkHarness, end: str) -> None:
    world.make_topic(2, each=5)
    query = world.query(KEPT)
    query.trigger()
    assert len(world.members()) == 1

    exit_code = query.stop() if end == "stopped" else query.reader.disconnect()

    assert exit_code is not None and not query.reader.is_alive
    world.await_no_members()  # long before its session ends


@pytest.mark.parametrize("end", ["stopped", "Spark is gone"])
def test_a_static_member_is_kept(world: SparkHarness, end: str) -> None:
    world.make_topic(2, each=5)
    query = world.query(MEMBER)
    query.trigger()

    exit_code = query.stop() if end == "stopped" else query.reader.disconnect()

    assert exit_code is not None and not query.reader.is_alive
    assert world.members() == {"spark-1": {0, 1}}


def test_a_query_that_fails_leaves_too(world: SparkHarness) -> None:
    world.make_topic(1, each=5)
    query = world.query(KEPT)
    query.trigger()
    world.produce(1, [0])
    world.delete_records(0, 6)

    with pytest.raises(QueryFailed, match="begins at 6"):
        query.trigger()

    eventually(lambda: not query.reader.is_alive, "its process has ended")
    world.await_no_members()


def test_a_query_that_is_stopped_while_it_waits_for_a_broker_ends_soon() -> None:
    with HoldfastBroker(QUICK) as broker:
        world = SparkHarness(broker)
        try:
            world.make_topic(1, each=5)
            query = world.query(KEPT)
            query.trigger()
            # given a broker that does not answer, and Spark's thread waiting for it
            broker.suspend()
            outcome: list[str] = []

            def ask() -> None:
                try:
                    query.trigger()
                except QueryFailed as failed:
                    outcome.append(str(failed))

            asking = threading.Thread(target=ask)
            asking.start()
            eventually(lambda: asking.is_alive(), "it asks")
            # when the query is stopped, twice as Spark does
            os.kill(query.reader.pid, signal.SIGTERM)
            os.kill(query.reader.pid, signal.SIGTERM)
            # then its process ends although it cannot leave the group, long before it would give the broker up
            eventually(lambda: not query.reader.is_alive, "its process has ended", 40)
            asking.join(30)
            assert outcome and "the reader is gone" in outcome[0]
        finally:
            broker.resume()
            world.close()


def test_a_process_whose_parent_is_gone_ends_although_its_main_thread_is_stuck(tmp_path: Path) -> None:
    reported = tmp_path / "reported"
    child = (
        "import importlib.util, pathlib, sys, time\n"
        "from holdfast.spark import runner_process\n"
        "import types\n"
        f"sys.modules['__main__'].__spec__ = types.SimpleNamespace(name={runner_process._RUNNER!r})\n"
        f"runner_process.exit_with_spark(lambda: pathlib.Path({str(reported)!r}).write_text('the end'))\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE)\n"
        "assert child.stdout.readline() == b'ready\\n'\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE)
    assert process.stdout is not None
    orphan = int(process.stdout.readline())
    assert not reported.exists()

    process.kill()
    process.wait()

    eventually(reported.exists, "it was asked to end")
    eventually(lambda: not _runs(orphan), "it has ended")


def test_a_reader_prints_its_stacks_on_sigquit_and_continues(world: SparkHarness) -> None:
    world.make_topic(1, each=5)
    query = world.query(KEPT)
    query.trigger()

    os.kill(query.reader.pid, signal.SIGQUIT)

    eventually(lambda: "python_streaming_source_runner.py" in query.reader.log_text(), "the stacks")
    query.trigger()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # before it was looked at, or while
        return False


def test_elsewhere_than_in_sparks_own_process_nothing_is_touched() -> None:
    before, threads = signal.getsignal(signal.SIGTERM), set(threading.enumerate())

    runner_process.exit_with_spark(lambda: None)

    assert not runner_process.is_runner()
    assert signal.getsignal(signal.SIGTERM) == before
    assert set(threading.enumerate()) <= threads, "those of other tests may end meanwhile"


def test_how_old_the_driver_is() -> None:
    age_s = runner_process.driver_age_s()

    assert age_s is not None and 0 <= age_s < time.clock_gettime(time.CLOCK_BOOTTIME)


# -- the reader itself -------------------------------------------------------------------------------------------------


def test_a_reader_does_nothing_before_it_is_asked() -> None:
    """Spark makes readers wherever it plans."""
    before = set(threading.enumerate())

    reader = StreamReader(stream_options(OPTIONS))

    assert reader.initialOffset() == {} and reader.reportLatestOffset() is None
    reader.commit({})
    reader.stop()
    assert set(threading.enumerate()) <= before


def test_a_reader_travels_to_the_executors() -> None:
    reader = StreamReader(stream_options({**OPTIONS, "maxOffsetsPerTrigger": "7"}))

    shipped = pickle.loads(pickle.dumps(reader))

    assert shipped.getDefaultReadLimit() == ReadMaxRows(7)
    assert isinstance(StreamReader(stream_options(OPTIONS)).getDefaultReadLimit(), ReadAllAvailable)


def test_a_minimum_is_a_limit_that_is_not_that_of_trigger_once() -> None:
    """Trigger.Once asks for ReadAllAvailable, and has no later trigger."""
    only_minimum = StreamReader(stream_options({**OPTIONS, "minOffsetsPerTrigger": "5"}))
    both = StreamReader(stream_options({**OPTIONS, "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "7"}))

    assert only_minimum.getDefaultReadLimit() == ReadMaxRows(2**63 - 1)
    assert both.getDefaultReadLimit() == ReadMaxRows(7)


def test_a_reader_that_runs_travels_without_its_query(world: SparkHarness) -> None:
    before = set(threading.enumerate())
    world.make_topic(1, each=2)
    reader = StreamReader(stream_options(world.options({"startingOffsets": "earliest"})))
    try:
        end = reader.latestOffset({}, ReadAllAvailable())
        assert end[world.topic] == {"0": [0, 2]}

        shipped = pickle.loads(pickle.dumps(reader))

        assert shipped._planner is None and reader._planner is not None
    finally:
        reader.stop()
    world.await_no_members()

    def left() -> set[threading.Thread]:
        """What other tests left running is theirs."""
        return {thread for thread in threading.enumerate() if thread.name.startswith("holdfast-")} - before

    eventually(lambda: not left(), "the end of its threads")
