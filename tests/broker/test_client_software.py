"""What a client calls itself in ApiVersions reaches the coordinator: docs/decisions/0017."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.wire.apis.api_versions import ApiVersionsRequest
from holdfast.wire.error_codes import ErrorCode
from tests.broker.group_members import WireMember, partitions
from tests.support.holdfast_broker import HoldfastBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[HoldfastBroker]:
    with HoldfastBroker({"group.initial.rebalance.delay.ms": "0"}) as started:
        yield started


@pytest.mark.parametrize(
    ("software", "skips"), [("apache-kafka-java", True), ("holdfast", True), ("kgo", False), (None, False)]
)
def test_a_restarted_leader_gets_skip_assignment_if_its_software_honours_it(
    broker: HoldfastBroker, software: str | None, skips: bool
) -> None:
    group = f"software-{software}"
    with WireMember(broker.address, group, instance_id="L") as leader:
        assert leader.join().error_code == ErrorCode.NONE
        assert leader.sync({leader.member_id: partitions(0)}).assignment == partitions(0)

    with WireMember(broker.address, group, instance_id="L") as again:
        if software is not None:
            assert again.ask(ApiVersionsRequest(software, "1.0"), 3).error_code == ErrorCode.NONE
        answer = again.join()

        assert (answer.skip_assignment, answer.leader == again.member_id) == (skips, skips)
        assert again.sync().assignment == partitions(0)
