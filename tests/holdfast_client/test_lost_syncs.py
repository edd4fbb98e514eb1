"""A SyncGroup or its answer is lost on the way: it is sent again, and the group does not rebalance for it.

Client-side Assignment Proposal (Kafka wiki), steps 3 and 4. `tests/broker/test_group_failure_steps_of_clients.py`
kills the broker there.
"""

from __future__ import annotations

import pytest

from holdfast.wire.apis.sync_group import SYNC_GROUP
from tests.groups.topics import make_topic
from tests.holdfast_client.consumers import Watched, evenly_assigned, poll_until, watching
from tests.holdfast_client.pausing_proxy import Side
from tests.holdfast_client.proxied_broker import ProxiedBroker

PARTITIONS = 4


@pytest.mark.parametrize("loser", ["leader", "follower"])
@pytest.mark.parametrize("side", Side, ids=lambda side: side.value)
def test_a_lost_sync_is_sent_again_and_costs_no_generation(
    proxied: ProxiedBroker, topic: str, group: str, side: Side, loser: str
) -> None:
    # given a member that leads, and a second one that comes
    make_topic(proxied.broker, topic, PARTITIONS)
    first, second = (Watched(proxied.broker, group, client_id=f"{group}-{name}") for name in ("leader", "follower"))
    with watching(first, second):
        first.subscribe(topic)
        poll_until(evenly_assigned(PARTITIONS, first), "the first has everything", first)
        generation = first.consumer.generation()

        # when the SyncGroup of one of them, or the answer to it, is lost with its connection
        hold = proxied.proxy.hold(f"{group}-{loser}", SYNC_GROUP.key, side)
        second.subscribe(topic)
        poll_until(hold.caught.is_set, "the SyncGroup is caught", first, second)
        hold.drop()
        poll_until(evenly_assigned(PARTITIONS, first, second), "each has its part", first, second)

        # then there is the one generation that the second member costs, and nothing was taken from anybody for the loss
        assert first.consumer.generation() == generation + 1
        assert [name for name, _ in first.callbacks] == ["on_assign", "on_revoke", "on_assign"]
        assert [name for name, _ in second.callbacks] == ["on_assign"]

        # and another member costs one more: the control
        third = Watched(proxied.broker, group).subscribe(topic)
        with watching(third):
            poll_until(evenly_assigned(PARTITIONS, first, second, third), "each has its part", first, second, third)
            assert first.consumer.generation() == generation + 2
