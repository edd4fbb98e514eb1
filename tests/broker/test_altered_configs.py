"""Broker configs altered while it runs: they hold at once, for topics that are there, and after the next start."""

from __future__ import annotations

import json
from pathlib import Path

from holdfast.wire.apis.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from holdfast.wire.error_codes import ErrorCode
from tests.broker.serve_process import refusal
from tests.broker.wire_client import WireClient, batch
from tests.support.holdfast_broker import HoldfastBroker

BROKER = 4
SET, DELETE = 0, 1


def alter(client: WireClient, name: str, value: str | None) -> None:
    change = IncrementalAlterableConfig(name, DELETE if value is None else SET, value)
    request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(BROKER, "1", [change])])
    (answer,) = client.ask(request, 1).responses
    assert answer.error_code == 0, answer


def test_a_smaller_batch_is_demanded_at_once_and_after_the_next_start(tmp_path: Path) -> None:
    large = batch(bytes(5000))
    with HoldfastBroker({"message.max.bytes": "10000"}, tmp_path) as broker:
        # given two topics, one of which has a limit of its own
        with WireClient(broker.address) as client:
            client.create_topic("plain")
            client.create_topic("own", max_message_bytes="10000")
            assert client.produce("plain", large).error_code == 0

            # when the broker's limit is altered
            alter(client, "message.max.bytes", "1000")

            # then it holds for the one that has none
            assert client.produce("plain", large).error_code == ErrorCode.MESSAGE_TOO_LARGE
            assert client.produce("own", large).error_code == 0

        # and it wins over the command line after a start, until it is taken back
        broker.restart()
        with WireClient(broker.address) as client:
            assert client.produce("plain", large).error_code == ErrorCode.MESSAGE_TOO_LARGE
            alter(client, "message.max.bytes", None)
            assert client.produce("plain", large).error_code == 0
        assert "broker configured altered=message.max.bytes=1000" in broker.log_text().replace('"', "")


def test_a_damaged_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with HoldfastBroker(directory=tmp_path) as broker:
        broker.stop()
    file = tmp_path / "data" / "broker-configs.json"
    for content in ("{", json.dumps({"version": 1, "for_all": {"node.id": "7"}, "own": {}})):
        file.write_text(content)

        assert "broker-configs.json is damaged" in refusal(tmp_path / "data")
