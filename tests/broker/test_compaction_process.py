"""A broker that has much to compact starts a process for it, which never outlives the broker, nor is missed."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from holdfast.wire.apis.delete_topics import DeleteTopicsRequest
from holdfast.wire.apis.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from holdfast.wire.records import Record, encode_batch
from tests.broker.wire_client import NOW_MS, WireClient
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.process_tree import command_line, descendants

TOPIC: Final = "large"
KEYS: Final = 4_000
TIMES_EACH_KEY: Final = 32
VALUE_BYTES: Final = 100
"""Many small records: a pass then takes long enough to be stopped in the middle of it."""
SETTINGS: Final = {
    "log.cleaner.backoff.ms": "100",
    "log.retention.ms": "-1",
    "log.segment.bytes": str(1024 * 1024),
    # The records are years old: the last segment is closed and compacted, too.
    "log.cleaner.max.compaction.lag.ms": str(24 * 3600 * 1000),
}
TOPIC_RESOURCE: Final = 2
PROMPTLY_S: Final = 10.0
"""Far less than the broker would wait, or the pass take; a busy machine needs some of it."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[HoldfastBroker]:
    """With 14 MB of a topic that is not compacted yet: each key 32 times."""
    broker = HoldfastBroker(SETTINGS, directory=tmp_path)
    with broker, WireClient(broker.address) as client:
        client.create_topic(TOPIC)
        for number in range(TIMES_EACH_KEY):
            assert client.produce(TOPIC, every_key(number)).error_code == 0
        yield broker


@cache
def every_key(number: int) -> bytes:
    return encode_batch([Record(n, NOW_MS, b"key-%d" % n, value(number)) for n in range(KEYS)])


def value(number: int) -> bytes:
    return b"%d " % number * (VALUE_BYTES // 3)


def set_policy(broker: HoldfastBroker, policy: str) -> None:
    change = IncrementalAlterableConfig("cleanup.policy", 0, policy)
    resource = IncrementalAlterConfigsResource(TOPIC_RESOURCE, TOPIC, [change])
    with WireClient(broker.address) as client:
        (answer,) = client.ask(IncrementalAlterConfigsRequest([resource]), 1).responses
    assert answer.error_code == 0, answer


def children(broker: HoldfastBroker) -> list[int]:
    return [pid for pid in descendants(broker.pid) if "holdfast.log.compaction_child" in command_line(pid)]


def stopped_in_mid_pass(broker: HoldfastBroker) -> int:
    """The process that compacts stands still until it is ended: whatever comes now comes while it works."""
    set_policy(broker, "compact")
    eventually(lambda: unfinished(broker), "a file that it writes into")
    (pid,) = children(broker)
    os.kill(pid, signal.SIGSTOP)
    assert not compactions(broker)
    return pid


def has_ended(pid: int) -> bool:
    """One that nobody has waited for yet has no command line any more."""
    return command_line(pid) == ""


def compactions(broker: HoldfastBroker) -> list[str]:
    return re.findall(rf"log compacted partition={TOPIC}-0 .*", broker.log_text())


def unfinished(broker: HoldfastBroker) -> list[str]:
    return [path.name for path in (broker.data_dir / f"{TOPIC}-0").glob("*.log.*")]


def last_values(broker: HoldfastBroker) -> dict[bytes | None, bytes | None]:
    with WireClient(broker.address) as client:
        return {record.key: record.value for record in client.fetch_all(TOPIC)}


EXPECTED: Final = {b"key-%d" % n: value(TIMES_EACH_KEY - 1) for n in range(KEYS)}


def check_compacted(broker: HoldfastBroker) -> None:
    eventually(lambda: compactions(broker), "the log is compacted")
    assert last_values(broker) == EXPECTED
    assert unfinished(broker) == []
    assert sum(path.stat().st_size for path in (broker.data_dir / f"{TOPIC}-0").glob("*.log")) < 2_000_000
    eventually(lambda: not children(broker), "no process is left", PROMPTLY_S)


def test_much_is_compacted_by_a_process_of_its_own(broker: HoldfastBroker) -> None:
    assert children(broker) == []

    set_policy(broker, "compact")
    eventually(lambda: children(broker), "a process that compacts")

    check_compacted(broker)
    assert "records_before=128000 records_after=4000 " in compactions(broker)[0]
    assert "WARNING" not in broker.log_text()


def test_a_broker_that_is_killed_takes_the_process_along(broker: HoldfastBroker) -> None:
    pid = stopped_in_mid_pass(broker)

    broker.kill()

    eventually(lambda: has_ended(pid), "the process ends with the broker", PROMPTLY_S)
    broker.start()
    assert last_values(broker) == EXPECTED
    check_compacted(broker)


def test_a_broker_that_is_stopped_ends_the_process(broker: HoldfastBroker) -> None:
    pid = stopped_in_mid_pass(broker)

    began = time.monotonic()
    broker.stop()

    assert time.monotonic() - began < PROMPTLY_S
    assert has_ended(pid)
    assert unfinished(broker) == []
    broker.start()
    check_compacted(broker)


def test_a_topic_that_is_deleted_ends_the_process(broker: HoldfastBroker) -> None:
    pid = stopped_in_mid_pass(broker)

    with WireClient(broker.address) as client:
        (answer,) = client.ask(DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=30_000), 5).responses

    assert answer.error_code == 0
    assert has_ended(pid)
    assert not (broker.data_dir / f"{TOPIC}-0").exists()


def test_a_process_that_is_killed_is_one_line_in_the_log_and_the_next_pass_does_it(broker: HoldfastBroker) -> None:
    pid = stopped_in_mid_pass(broker)

    os.kill(pid, signal.SIGKILL)

    check_compacted(broker)
    errors = re.findall(r" ERROR .*", broker.log_text())
    assert len(errors) == 1
    assert re.search(rf"cannot compact .*/{TOPIC}-0: its process was ended by SIGKILL$", errors[0])
    assert "Traceback" not in broker.log_text()
