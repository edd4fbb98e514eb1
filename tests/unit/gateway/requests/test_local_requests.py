"""Group requests at the gateway: rights, adoption, topics, and the answers of the coordinator."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast.gateway import own_groups
from holdfast.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from holdfast.wire.apis.api_versions import ApiVersion, ApiVersionsResponse
from holdfast.wire.apis.delete_groups import DeleteGroupsRequest
from holdfast.wire.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from holdfast.wire.apis.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from holdfast.wire.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from holdfast.wire.apis.heartbeat import HeartbeatRequest
from holdfast.wire.apis.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from holdfast.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from holdfast.wire.apis.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from holdfast.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.wire.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from holdfast.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from holdfast.wire.apis.release_group import ReleaseGroupRequest
from holdfast.wire.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from holdfast.wire.error_codes import ErrorCode
from tests.unit.gateway.requests.harness import TOPIC_ID, FakeClient, RequestsHarness, allowed

GROUP = 32
"""The resource type of a group's configs."""
TOPIC = 2


def run(story: Callable[[RequestsHarness], Coroutine[Any, Any, None]]) -> None:
    async def scenario() -> None:
        async with RequestsHarness() as harness:
            await asyncio.wait_for(story(harness), 30)

    asyncio.run(scenario())


def commit(group: str, offset: int, topic: str = "t") -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])])


def fetch(group: str) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])


def join(group: str) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol("range", b"")]
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=protocols,
    )


async def committed(harness: RequestsHarness, client: FakeClient, group: str) -> dict[tuple[str, int], int]:
    response = await harness.ask(client, fetch(group), 8)
    (found,) = response.groups
    assert found.error_code == ErrorCode.NONE
    return {
        (topic.name, one.partition_index): one.committed_offset for topic in found.topics for one in topic.partitions
    }


def code_of(response: Any) -> ErrorCode:
    return ErrorCode(response.topics[0].partitions[0].error_code)


# -- the usual way -----------------------------------------------------------------------------------------------------


def test_offsets_that_are_committed_are_fetched() -> None:
    async def story(harness: RequestsHarness) -> None:
        client = harness.client()
        assert code_of(await harness.ask(client, commit("g", 5), 8)) is ErrorCode.NONE
        assert await committed(harness, client, "g") == {("t", 0): 5}
        assert "g" in harness.kafka.held

    run(story)


def test_a_known_group_with_known_rights_is_answered_at_once() -> None:
    async def story(harness: RequestsHarness) -> None:
        client = harness.client()
        first = harness.send(client, commit("g", 5), 8)
        assert isinstance(first, Coroutine), "the control: rights and adoption take a while"
        await first
        asked = len(client.asked)

        assert isinstance(harness.send(client, commit("g", 6), 8), bytes)
        assert len(client.asked) == asked

    run(story)


def test_a_request_of_a_version_that_is_not_served_closes_the_connection() -> None:
    async def story(harness: RequestsHarness) -> None:
        frame = (12).to_bytes(2) + (99).to_bytes(2) + bytes(7)
        with pytest.raises(Exception, match="Heartbeat version 99; served are 0 to 4"):
            harness.requests.answer(frame, harness.client())

    run(story)


# -- rights ------------------------------------------------------------------------------------------------------------


def denying(*types: type) -> Callable[[Any], Any]:
    def answers(request: Any) -> Any:
        response = allowed(request)
        if isinstance(request, types):
            if isinstance(request, DescribeGroupsRequest):
                for group in response.groups:
                    group.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            else:
                response.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return response

    return answers


def test_a_client_without_read_cannot_commit_and_does_not_make_the_gateway_hold_the_name() -> None:
    async def story(harness: RequestsHarness) -> None:
        client = harness.client("User:eve")
        client.answers = denying(HeartbeatRequest)
        assert code_of(await harness.ask(client, commit("g", 5), 8)) is ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert (await harness.ask(client, join("g"), 5)).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert harness.kafka.held == set()

        friend = harness.client("User:alice")
        assert code_of(await harness.ask(friend, commit("g", 5), 8)) is ErrorCode.NONE, "the control"

    run(story)


def test_a_client_without_describe_cannot_fetch() -> None:
    async def story(harness: RequestsHarness) -> None:
        await harness.ask(harness.client(), commit("g", 5), 8)
        client = harness.client("User:eve")
        client.answers = denying(DescribeGroupsRequest)

        response = await harness.ask(client, fetch("g"), 8)

        assert response.groups[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert await committed(harness, harness.client("User:alice"), "g") == {("t", 0): 5}, "the control"

    run(story)


def test_a_client_without_delete_cannot_delete_or_release_a_group() -> None:
    async def story(harness: RequestsHarness) -> None:
        await harness.ask(harness.client(), commit("g", 5), 8)
        client = harness.client("User:eve")
        client.answers = denying(OffsetDeleteRequest)

        deleted = await harness.ask(client, DeleteGroupsRequest(groups_names=["g"]), 2)
        released = await harness.ask(client, ReleaseGroupRequest(group_id="g"), 0)

        assert deleted.results[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert released.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert await committed(harness, harness.client(), "g") == {("t", 0): 5}

    run(story)


def test_rights_are_asked_again_after_a_minute_and_belong_to_the_principal() -> None:
    async def story(harness: RequestsHarness) -> None:
        client = harness.client("User:alice")
        await harness.ask(client, commit("g", 5), 8)
        client.answers = denying(HeartbeatRequest)
        assert code_of(await harness.ask(client, commit("g", 6), 8)) is ErrorCode.NONE, "kept"
        other = harness.client("User:eve")
        other.answers = client.answers
        assert code_of(await harness.ask(other, commit("g", 6), 8)) is ErrorCode.GROUP_AUTHORIZATION_FAILED

        harness.now += 61
        assert code_of(await harness.ask(client, commit("g", 7), 8)) is ErrorCode.GROUP_AUTHORIZATION_FAILED

    run(story)


# -- adoption ----------------------------------------------------------------------------------------------------------


def test_the_first_request_of_a_group_copies_its_offsets_from_kafka() -> None:
    async def story(harness: RequestsHarness) -> None:
        harness.kafka.offsets["g"] = {("t", 0): 41, ("t", 3): 7}
        client = harness.client()

        assert code_of(await harness.ask(client, commit("g", 50), 8)) is ErrorCode.NONE

        harness.kafka.offsets["g"] = {("t", 0): 1}
        assert await committed(harness, client, "g") == {("t", 0): 50, ("t", 3): 7}
        assert "g" in harness.kafka.held

    run(story)


def test_offsets_of_a_group_that_is_not_adopted_are_read_from_kafka_and_its_name_stays_free() -> None:
    async def story(harness: RequestsHarness) -> None:
        harness.kafka.offsets["g"] = {("t", 0): 41}
        client = harness.client()
        assert await committed(harness, client, "g") == {("t", 0): 41}
        assert await committed(harness, client, "nobody") == {}
        assert harness.kafka.held == set()
        harness.now += 2
        harness.kafka.offsets["g"] = {("t", 0): 42}
        assert await committed(harness, client, "g") == {("t", 0): 42}, "not kept"

    run(story)


def test_a_client_without_describe_does_not_make_the_gateway_read_offsets() -> None:
    async def story(harness: RequestsHarness) -> None:
        client = harness.client("User:eve")
        client.answers = denying(DescribeGroupsRequest)
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(f"g{one}", topics=None) for one in range(2_000)])
        began = time.process_time()
        response = await harness.ask(client, request, 8)
        assert {one.error_code for one in response.groups} == {ErrorCode.GROUP_AUTHORIZATION_FAILED}
        assert harness.kafka.reads == 0
        assert time.process_time() - began < 2, "not quadratic in the number of groups"

    run(story)


def test_a_group_with_members_in_kafka_is_refused_until_they_stop() -> None:
    async def story(harness: RequestsHarness) -> None:
        harness.kafka.members["g"] = 2
        harness.kafka.offsets["g"] = {("t", 3): 41}
        client = harness.client()
        refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await harness.ask(client, join("g"), 5)).error_code == refused
        assert code_of(await harness.ask(client, commit("g", 1), 8)) is refused
        assert await committed(harness, client, "g") == {("t", 3): 41}, "as Kafka says"

        del harness.kafka.members["g"]
        assert code_of(await harness.ask(client, commit("g", 1), 8)) is ErrorCode.NONE
        assert await committed(harness, client, "g") == {("t", 0): 1, ("t", 3): 41}

    run(story)


def test_many_clients_adopt_a_group_once_and_all_see_its_offsets() -> None:
    async def story(harness: RequestsHarness) -> None:
        harness.kafka.offsets["g"] = {("t", 3): 41}
        harness.group_log.pause()
        clients = [harness.client() for _ in range(20)]
        asked = [asyncio.create_task(harness.ask(client, commit("g", 1), 8)) for client in clients]
        while not harness.group_log.paused:  # noqa: ASYNC110
            await asyncio.sleep(0)
        late = asyncio.create_task(committed(harness, harness.client(), "g"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not late.done(), "the adoption is being stored"

        harness.group_log.resume()

        assert {code_of(response) for response in await asyncio.gather(*asked)} == {ErrorCode.NONE}
        assert (await late)[("t", 3)] == 41
        assert harness.kafka.adoptions == 1

    run(story)


def test_an_adoption_that_cannot_be_stored_is_repeated() -> None:
    async def story(harness: RequestsHarness) -> None:
        harness.kafka.offsets["g"] = {("t", 3): 41}
        harness.group_log.failures = 1
        client = harness.client()
        assert code_of(await harness.ask(client, commit("g", 1), 8)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert code_of(await harness.ask(client, commit("g", 1), 8)) is ErrorCode.NONE
        assert await committed(harness, client, "g") == {("t", 0): 1, ("t", 3): 41}

    run(story)


def test_a_group_that_was_configured_first_is_adopted_too() -> None:
    async def story(harness: RequestsHarness) -> None:
        harness.kafka.offsets["g"] = {("t", 3): 41}
        client = harness.client()
        change = IncrementalAlterableConfig("target.group.size", 0, "3")
        resources = [IncrementalAlterConfigsResource(GROUP, "g", [change])]
        await harness.ask(client, IncrementalAlterConfigsRequest(resources=resources), 1)
        assert code_of(await harness.ask(client, commit("g", 1), 8)) is ErrorCode.NONE
        assert await committed(harness, client, "g") == {("t", 0): 1, ("t", 3): 41}
        assert "g" in harness.kafka.held

    run(story)


def test_offsets_with_long_metadata_are_adopted() -> None:
    async def story(harness: RequestsHarness) -> None:
        harness.kafka.offsets["g"] = {("t", 3): 41}
        harness.kafka.metadata = "m" * 10_000
        client = harness.client()
        assert code_of(await harness.ask(client, commit("g", 1), 8)) is ErrorCode.NONE
        assert (await committed(harness, client, "g"))[("t", 3)] == 41

    run(story)


# -- release -----------------------------------------------------------------------------------------------------------


def test_a_deleted_group_gives_its_name_up() -> None:
    async def story(harness: RequestsHarness) -> None:
        client = harness.client()
        await harness.ask(client, commit("g", 5), 8)
        response = await harness.ask(client, DeleteGroupsRequest(groups_names=["g"]), 2)
        assert response.results[0].error_code == ErrorCode.NONE
        while not any(isinstance(one, DeleteGroupsRequest) for one in harness.kafka.asked):  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert harness.kafka.held == set()

    run(story)


def test_a_group_whose_offsets_could_not_be_copied_is_not_served_although_its_name_is_held() -> None:
    async def story(harness: RequestsHarness) -> None:
        harness.kafka.offsets["g"] = {("t", 3): 41}
        harness.kafka.failures = 1
        client = harness.client()
        assert code_of(await harness.ask(client, commit("g", 1), 8)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "g" in harness.kafka.held, "the control: the name alone does not make it ready"

        assert code_of(await harness.ask(client, commit("g", 1), 8)) is ErrorCode.NONE
        assert await committed(harness, client, "g") == {("t", 0): 1, ("t", 3): 41}

    run(story)


def test_offsets_from_before_the_adoption_do_not_come_back_after_a_deletion() -> None:
    async def story(harness: RequestsHarness) -> None:
        harness.kafka.offsets["g"] = {("t", 3): 41}
        client = harness.client()
        await harness.ask(client, commit("g", 1), 8)
        await harness.ask(client, DeleteGroupsRequest(groups_names=["g"]), 2)

        assert code_of(await harness.ask(client, commit("g", 2), 8)) is ErrorCode.NONE, "waits for the deletion there"

        assert await committed(harness, client, "g") == {("t", 0): 2}

    run(story)


def test_nor_after_the_last_offset_is_deleted() -> None:
    async def story(harness: RequestsHarness) -> None:
        harness.kafka.offsets["g"] = {("t", 0): 41}
        client = harness.client()
        await harness.ask(client, commit("g", 1), 8)
        topic = OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])
        await harness.ask(client, OffsetDeleteRequest(group_id="g", topics=[topic]), 0)
        assert await committed(harness, client, "g") == {}

    run(story)


def test_a_commit_that_is_being_stored_is_part_of_a_release(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(harness: RequestsHarness) -> None:
        client = harness.client()
        await harness.ask(client, commit("g", 5), 8)
        harness.group_log.pause()
        last = asyncio.create_task(harness.ask(client, commit("g", 900), 8))
        while not harness.group_log.paused:  # noqa: ASYNC110
            await asyncio.sleep(0)
        released = asyncio.create_task(harness.ask(harness.client(), ReleaseGroupRequest(group_id="g"), 0))
        for _ in range(20):
            await asyncio.sleep(0)
        harness.group_log.resume()

        assert code_of(await last) is ErrorCode.NONE
        response = await released
        assert (response.error_code, response.partition_count) == (ErrorCode.NONE, 1)
        assert harness.kafka.written == {"g": {("t", 0): 900}}
        assert harness.kafka.held == set()

    async def write_back(kafka: Any, _names: Any, group_id: str, offsets: Any) -> None:
        kafka.written[group_id] = {where: value.offset for where, value in offsets.items()}

    monkeypatch.setattr(own_groups, "write_back", write_back)
    run(story)


def test_rights_of_a_minute_ago_are_valid_while_kafka_does_not_answer() -> None:
    async def story(harness: RequestsHarness) -> None:
        first, second = harness.client("User:a"), harness.client("User:a")
        for client in (first, second):
            await harness.ask(client, commit("g", 5), 8)
        harness.now += 61
        first.hangs = True
        hanging = asyncio.create_task(harness.ask(first, commit("g", 6), 8))
        await asyncio.sleep(0)
        harness.now += 1
        assert isinstance(harness.send(second, commit("g", 7), 8), bytes), "Kafka is slow"
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)
        answer = harness.send(second, commit("g", 8), 8)
        assert isinstance(answer, Coroutine), "the control: Kafka is asked again"
        answer.close()

    run(story)


def test_a_group_that_does_not_exist_is_not_released() -> None:
    async def story(harness: RequestsHarness) -> None:
        response = await harness.ask(harness.client(), ReleaseGroupRequest(group_id="nobody"), 0)
        assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert response.error_message == "this gateway has no group 'nobody'"

    run(story)


# -- topics ------------------------------------------------------------------------------------------------------------


def test_an_unknown_topic_is_looked_up_once_before_its_commit_is_rejected() -> None:
    async def story(harness: RequestsHarness) -> None:
        client = harness.client()
        assert code_of(await harness.ask(client, commit("g", 1, "new"), 8)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert harness.mirror.refreshes == 1

        harness.mirror.later["new"] = harness.mirror.names["t"]
        assert code_of(await harness.ask(client, commit("g", 1, "new"), 8)) is ErrorCode.NONE
        assert harness.mirror.refreshes == 2

    run(story)


def test_a_commit_by_topic_id() -> None:
    async def story(harness: RequestsHarness) -> None:
        request = commit("g", 9)
        request.topics[0].topic_id, request.topics[0].name = TOPIC_ID, ""
        assert code_of(await harness.ask(harness.client(), request, 10)) is ErrorCode.NONE
        assert await committed(harness, harness.client(), "g") == {("t", 0): 9}

    run(story)


# -- requests that also concern Kafka ----------------------------------------------------------------------------------


def test_the_coordinator_of_a_group_is_an_address_of_the_gateway() -> None:
    async def story(harness: RequestsHarness) -> None:
        request = FindCoordinatorRequest(coordinator_keys=["a", "b", "c"], key_type=0)
        response = await harness.ask(harness.client(), request, 4)
        assert [(one.host, one.port - 9093) for one in response.coordinators] == [
            ("gw.test", one.node_id) for one in response.coordinators
        ]

        old = await harness.ask(harness.client(), FindCoordinatorRequest(key="a", key_type=0), 3)
        assert (old.node_id, old.port) == (response.coordinators[0].node_id, response.coordinators[0].port)

    run(story)


def test_the_coordinator_of_a_transaction_is_kafkas() -> None:
    async def story(harness: RequestsHarness) -> None:
        client = harness.client()
        client.answers = lambda _: FindCoordinatorResponse(node_id=2, host="gw.test", port=9095)
        response = await harness.ask(client, FindCoordinatorRequest(key="t", key_type=1), 3)
        assert (response.node_id, response.port) == (2, 9095)

    run(story)


def test_each_address_lists_its_part_of_the_groups_and_those_in_kafka() -> None:
    async def story(harness: RequestsHarness) -> None:
        names = {f"g{number}" for number in range(12)}
        for name in names:
            await harness.ask(harness.client(), commit(name, 1), 8)

        def answers(request: Any) -> Any:
            if isinstance(request, ListGroupsRequest):
                held = [ListedGroup(name, "holdfast", "Stable", "Classic") for name in names]
                return ListGroupsResponse(groups=[*held, ListedGroup("in-kafka", "consumer", "Stable", "Classic")])
            return allowed(request)

        listed: list[list[str]] = []
        for node_id in (1, 2, 3):
            client = harness.client(node_id=node_id)
            client.answers = answers
            response = await harness.ask(client, ListGroupsRequest(), 4)
            assert response.error_code == ErrorCode.NONE
            found = [one.group_id for one in response.groups]
            assert found.count("in-kafka") == 1
            listed.append([name for name in found if name != "in-kafka"])
        assert sorted(name for part in listed for name in part) == sorted(names), "each once"
        assert all(listed)

    run(story)


def test_a_group_in_kafka_is_described_as_kafka_does() -> None:
    async def story(harness: RequestsHarness) -> None:
        harness.kafka.members["busy"] = 2
        await harness.ask(harness.client(), commit("own", 1), 8)
        request = DescribeGroupsRequest(groups=["busy", "own", "nobody"])
        response: DescribeGroupsResponse = await harness.ask(harness.client(), request, 5)
        states = {one.group_id: one.group_state for one in response.groups}
        assert states == {"busy": "Stable", "own": "Empty", "nobody": "Dead"}
        assert harness.kafka.held == {"own"}, "describing adopts nothing"

    run(story)


def test_configs_of_groups_come_from_the_coordinator_and_the_others_from_kafka() -> None:
    async def story(harness: RequestsHarness) -> None:
        client = harness.client()
        forwarded: list[DescribeConfigsRequest] = []

        def answers(request: Any) -> Any:
            if isinstance(request, DescribeConfigsRequest):
                forwarded.append(request)
                results = [
                    DescribeConfigsResult(resource_type=one.resource_type, resource_name=one.resource_name)
                    for one in request.resources
                ]
                return DescribeConfigsResponse(results=results)
            return allowed(request)

        client.answers = answers
        resources = [DescribeConfigsResource(GROUP, "g", None), DescribeConfigsResource(TOPIC, "t", None)]
        response = await harness.ask(client, DescribeConfigsRequest(resources=resources), 4)

        found = {one.resource_name: {config.name for config in one.configs} for one in response.results}
        assert "target.group.size" in found["g"]
        assert found["t"] == set()
        assert [[one.resource_name for one in request.resources] for request in forwarded] == [["g"], ["t"]], (
            "the first is the question for the right"
        )

    run(story)


def test_the_config_of_a_group_can_be_altered() -> None:
    async def story(harness: RequestsHarness) -> None:
        change = IncrementalAlterableConfig("target.group.size", 0, "3")
        resources = [IncrementalAlterConfigsResource(GROUP, "g", [change])]
        response = await harness.ask(harness.client(), IncrementalAlterConfigsRequest(resources=resources), 1)
        assert [one.error_code for one in response.responses] == [ErrorCode.NONE]
        assert harness.groups.coordinator.configured_groups() == ["g"]

    run(story)


def test_offsets_in_transactions_are_refused_and_not_forwarded(caplog: pytest.LogCaptureFixture) -> None:
    async def story(harness: RequestsHarness) -> None:
        client = harness.client()
        denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
        added = await harness.ask(client, AddOffsetsToTxnRequest("tx", 1, 0, "g"), 3)
        topic = TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, 5)])
        request = TxnOffsetCommitRequest(transactional_id="tx", group_id="g", topics=[topic])
        response = await harness.ask(client, request, 3)
        assert added.error_code == denied
        assert response.topics[0].partitions[0].error_code == denied
        assert client.asked == []

    run(story)
    assert sum("exactly-once with offsets refused" in record.message for record in caplog.records) == 1


# -- ApiVersions -------------------------------------------------------------------------------------------------------


def test_the_versions_are_kafkas_with_those_of_group_requests_replaced() -> None:
    async def story(harness: RequestsHarness) -> None:
        keys = [
            ApiVersion(0, 3, 13),
            ApiVersion(9, 1, 99),
            ApiVersion(16, 2, 99),
            ApiVersion(69, 0, 1),
            ApiVersion(32, 90, 99),
        ]
        kafka = ApiVersionsResponse(api_keys=keys)
        merged = {
            one.api_key: (one.min_version, one.max_version) for one in harness.requests.api_versions(kafka).api_keys
        }
        assert merged[0] == (3, 13), "forwarded: Kafka's"
        assert merged[9] == (0, 10), "OffsetFetch: the gateway's"
        assert merged[16] == (2, 5), "ListGroups: both must understand it"
        assert 69 not in merged, "ConsumerGroupDescribe is hidden"
        assert 32 not in merged, "DescribeConfigs: Kafka has only newer versions"
        assert {10_000, 10_001, 10_002, 10_003} <= merged.keys()
        assert 28 not in merged, "Kafka without transactions does not get them"

    run(story)


# -- conflicts ---------------------------------------------------------------------------------------------------------


def test_a_name_in_use_on_both_sides_goes_to_the_log_and_the_ledger(caplog: pytest.LogCaptureFixture) -> None:
    async def story(harness: RequestsHarness) -> None:
        await harness.ask(harness.client(), commit("g", 1), 8)
        harness.own_groups.conflict("g", "group 'g' has members in Kafka")
        assert [event.kind for event in harness.event_log.events][-1:] == ["name used in Kafka"]

    run(story)
    assert "group 'g' has members in Kafka" in caplog.text
