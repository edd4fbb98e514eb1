"""kill -9 wherever something is written while a topic grows: the group that reads it sees to what was added."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.wire.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from holdfast.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.crash_matrix import (
    NONE,
    Acknowledged,
    AcknowledgedGroup,
    another_group,
    crash_at_every_point,
    two_members,
)
from tests.broker.group_members import WireMember, wait_until_loaded
from tests.broker.wire_client import WireClient

REBALANCE_IN_PROGRESS = 27
GROUP = "readers"


def grow(group: AcknowledgedGroup, count: int) -> None:
    with WireClient(group.address) as client:
        asked = CreatePartitionsRequest([CreatePartitionsTopic("orders", count, None)], 10_000)
        (answer,) = client.ask(asked, 2).results
        assert answer.error_code == NONE, answer


def size(client: WireClient) -> int:
    (topic,) = client.ask(MetadataRequest([MetadataRequestTopic(name="orders")]), 9).topics
    return len(topic.partitions)


def heartbeats(address: tuple[str, int], reported: Acknowledged) -> set[int]:
    codes = set()
    for instance_id, member_id in reported.members.items():
        with WireMember(address, GROUP, instance_id, member_id, reported.generation) as member:
            codes.add(member.heartbeat())
    return codes


@pytest.mark.parametrize("flush", ["os", "always"])
def test_a_topic_grows(flush: str, data_path: Path) -> None:
    """Its static leader may not know that it leads: the group rebalances after the kill if the topic has grown. If it
    has not, it is left in peace: the control is in the same test."""
    sizes: list[int] = []

    def act(group: AcknowledgedGroup) -> None:
        grow(group, 3)

    def check(address: tuple[str, int], reported: Acknowledged) -> None:
        with WireClient(address) as client:
            wait_until_loaded(client)
            sizes.append(size(client))
        assert heartbeats(address, reported) == {NONE if sizes[-1] == 2 else REBALANCE_IN_PROGRESS}

    assert crash_at_every_point(data_path, two_members, act, flush, check=check) >= 3
    assert {2, 3} == set(sizes), "it was killed before the growth and after it"


def member_that_leaves_partitions_unassigned(group: AcknowledgedGroup) -> None:
    """Given: a group of one that reads one of two partitions, and no more."""
    another_group(group)
    group.join("a")
    group.sync("a")


@pytest.mark.parametrize("flush", ["os", "always"])
def test_what_a_group_leaves_out_is_no_growth(flush: str, data_path: Path) -> None:
    """The control: its assignment does not cover the topic either, and it is left in peace at every start."""

    def act(group: AcknowledgedGroup) -> None:
        group.commit("a", 0, 10)

    def check(address: tuple[str, int], reported: Acknowledged) -> None:
        with WireClient(address) as client:
            wait_until_loaded(client)
            assert size(client) == 2
        assert heartbeats(address, reported) == {NONE}

    assert crash_at_every_point(data_path, member_that_leaves_partitions_unassigned, act, flush, check=check) >= 3
