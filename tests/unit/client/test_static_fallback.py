"""`static.membership.fallback`: what a member with an instance id does where the broker knows none."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from holdfast.client.errors import UnsupportedVersion
from holdfast.wire.apis.join_group import JOIN_GROUP
from tests.unit.client.scripted import ScriptedServer
from tests.unit.client.test_member_extensions import Leadership, consumer_of, poll_until

STATIC: dict[str, Any] = {"group.instance.id": "instance-1"}
BEFORE_INSTANCE_IDS = {JOIN_GROUP.key: 4}
"""As brokers before Kafka 2.3."""


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "static.membership.fallback" in one.getMessage()]


def test_a_member_that_falls_back_to_dynamic_logs_it_once(caplog: pytest.LogCaptureFixture) -> None:
    old = Leadership(holdfast=False, highest=BEFORE_INSTANCE_IDS)
    settings = STATIC | {"static.membership.fallback": "dynamic"}
    with (
        caplog.at_level(logging.WARNING, "holdfast.client"),
        ScriptedServer(old.group) as server,
        consumer_of(server, **settings) as (consumer, callbacks),
    ):
        address = server.address
        poll_until(consumer, lambda: callbacks.calls, "an assignment")

        # also when the coordinator is reached once more
        generation = old.generation
        consumer.membership_thread.submit(lambda membership, now: membership._discovery.mark_unknown(now))
        consumer.membership_thread.submit(lambda membership, now: membership.rejoin("for the test", now))
        poll_until(consumer, lambda: old.generation > generation, "another generation")

    assert all(one.group_instance_id is None for one in old.group.messages(JOIN_GROUP))
    assert logged(caplog) == [
        "group.instance.id 'instance-1' is not used (static.membership.fallback=dynamic): the broker at "
        f"{address.host}:{address.port} knows no static members (JoinGroup up to v4, v5 is needed). This member joins "
        "group 'g' as a dynamic one, and a restart of it is a rebalance"
    ]


def test_control_a_broker_with_instance_ids_gets_it_and_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    new = Leadership(holdfast=False)
    settings = STATIC | {"static.membership.fallback": "dynamic"}
    with (
        caplog.at_level(logging.WARNING, "holdfast.client"),
        ScriptedServer(new.group) as server,
        consumer_of(server, **settings) as (consumer, callbacks),
    ):
        poll_until(consumer, lambda: callbacks.calls, "an assignment")

    assert {one.group_instance_id for one in new.group.messages(JOIN_GROUP)} == {"instance-1"}
    assert logged(caplog) == []


def test_control_without_the_setting_the_broker_is_refused() -> None:
    old = Leadership(holdfast=False, highest=BEFORE_INSTANCE_IDS)
    with (
        ScriptedServer(old.group) as server,
        consumer_of(server, **STATIC) as (consumer, _),
        pytest.raises(UnsupportedVersion, match=r"static\.membership\.fallback=dynamic"),
    ):
        poll_until(consumer, lambda: False, "an error")
