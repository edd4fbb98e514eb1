"""The settings of a consumer: what cannot be is refused by name, and secrets are not shown."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from holdfast import Consumer
from holdfast.assignors import RangeAssignor
from holdfast.client.consumer_config import ConsumerConfig
from holdfast.client.errors import ConfigError

NEEDED = {"bootstrap.servers": "localhost:1", "group.id": "g"}


def read(**settings: Any) -> ConsumerConfig:
    return ConsumerConfig.read(NEEDED, settings)


@pytest.mark.parametrize(
    "strategy", ["range", RangeAssignor(), ["range"], [RangeAssignor()]], ids=["name", "object", "names", "objects"]
)
def test_a_strategy_is_a_name_or_an_assignor_or_a_list_of_them(strategy: Any) -> None:
    assert [one.name for one in read(partition_assignment_strategy=strategy).assignors] == ["range"]


@pytest.mark.parametrize("strategy", [RangeAssignor, [RangeAssignor], 7], ids=["class", "classes", "number"])
def test_a_class_is_no_strategy(strategy: Any) -> None:
    with pytest.raises(ConfigError, match="takes names and instances"):
        read(partition_assignment_strategy=strategy)


def test_a_group_id_that_is_no_text_is_said_to_be_none() -> None:
    with pytest.raises(ConfigError, match=r"group\.id is 5; it must be text"):
        ConsumerConfig.read(NEEDED | {"group.id": 5}, {})


def test_a_password_reaches_both_planes_and_is_shown_by_neither() -> None:
    guard = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "alice"}
    config = read(**guard, sasl_password="hush")

    assert config.network.security.sasl is not None
    assert config.network.security.sasl.password == config.librdkafka["sasl.password"] == "hush"
    assert "alice" in repr(config)
    assert "hush" not in repr(config)


def test_an_assignor_belongs_to_one_consumer_at_a_time() -> None:
    mine = RangeAssignor()
    config = {"bootstrap.servers": "localhost:1", "group.id": "g", "partition.assignment.strategy": mine}
    with Consumer(config), pytest.raises(ConfigError, match="RangeAssignor that another consumer uses"):
        Consumer(config)

    with pytest.raises(ConfigError, match="librdkafka rejects its settings"):
        Consumer(config | {"fetch.min.bytes": "many"})
    Consumer(config).close()


@pytest.mark.parametrize(
    ("settings", "warnings"),
    [
        ({"partition.assignment.strategy": "redundant"}, 1),
        ({"partition.assignment.strategy": "redundant", "enable.auto.commit": False}, 0),
        ({"partition.assignment.strategy": "copartitioned"}, 0),
        ({}, 0),
    ],
    ids=["redundant", "redundant without auto-commit", "one owner", "default"],
)
def test_auto_commit_by_several_owners_of_a_partition_is_warned_of(
    settings: dict[str, Any], warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "holdfast.client"), Consumer(NEEDED | settings):
        said = [record.getMessage() for record in caplog.records if "enable.auto.commit" in record.getMessage()]

    assert len(said) == warnings
    assert all("'holdfast-redundant' gives a partition to several members: the group 'g'" in one for one in said)
