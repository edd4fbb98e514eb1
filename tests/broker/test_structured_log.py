"""The broker's log: one line for each event that matters, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

from holdfast.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from holdfast.wire.apis.delete_topics import DeleteTopicsRequest
from tests.broker.wire_client import WireClient, batch
from tests.support.holdfast_broker import HoldfastBroker


def events(broker: HoldfastBroker) -> list[dict[str, object]]:
    return [json.loads(line) for line in broker.log_text().splitlines() if line.startswith("{")]


def test_a_broker_logs_its_events_as_json(tmp_path: Path) -> None:
    with HoldfastBroker({"logging.format": "json"}, tmp_path) as broker:
        # given a broker whose topic is created and deleted, and that is killed within a batch
        with WireClient(broker.address) as client:
            client.create_topic("kept", 2, retention_ms="1000000")
            client.create_topic("gone")
            client.ask(DeleteTopicsRequest([], ["gone"], 10_000), 3)
            assert client.produce("kept", batch(b"whole")).error_code == 0
        broker.kill()
        log = broker.data_dir / "kept-0" / f"{0:020d}.log"
        whole = log.stat().st_size
        with log.open("ab") as file:
            file.write(b"torn")

        # when it is started again and stopped
        broker.start()
        broker.stop()
        reported = events(broker)

    # then the log has it, event by event
    assert [event["event"] for event in reported] == [
        "data opened",
        "listening",
        "topic created",
        "topic created",
        "topic deleted",
        "torn tail cut behind the last whole batch",
        "data opened",
        "listening",
        "stopping",
        "stopped",
    ]
    assert reported[0]["was_clean"] is False
    assert (reported[2]["topic"], reported[2]["partitions"], reported[2]["configs"]) == (
        "kept",
        2,
        "retention.ms=1000000",
    )
    assert reported[4]["topic"] == "gone"
    assert (reported[5]["file"], reported[5]["cut_bytes"], reported[5]["end_offset"]) == (str(log), 4, 1)
    assert (reported[6]["topics"], reported[6]["partitions"]) == (1, 2)
    assert whole > 0


def test_a_client_cannot_write_lines_of_its_own(tmp_path: Path) -> None:
    forged = "g\n2026-11-16 10:00:00,000 INFO holdfast.broker.storage.topics: topic deleted topic=orders"
    with HoldfastBroker(directory=tmp_path) as broker:
        with WireClient(broker.address) as client:
            client.ask(ConsumerGroupHeartbeatRequest(group_id=forged), 0)
        assert "group.protocol=consumer" in broker.log_text()
        assert not [line for line in broker.log_text().splitlines() if line.startswith("2026-11-16 10:00:00,000")]
