"""The cluster: found at the start, followed afterwards, asked in turn, and left without traces."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from holdfast.client.addresses import Address
from holdfast.gateway.brokers import GatewayAddresses, parse_bootstrap
from holdfast.gateway.kafka import cluster as module
from holdfast.gateway.kafka import pool
from holdfast.gateway.kafka.cluster import KafkaCluster
from holdfast.gateway.kafka.errors import KafkaRefused, KafkaSetupError, KafkaUnreachable
from holdfast.gateway.kafka.settings import KafkaClientSettings
from holdfast.wire.apis.describe_configs import DESCRIBE_CONFIGS
from holdfast.wire.apis.find_coordinator import FIND_COORDINATOR
from holdfast.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from holdfast.wire.apis.metadata import METADATA, MetadataResponse
from holdfast.wire.error_codes import ErrorCode
from tests.support.held_ports import held_port
from tests.unit.gateway.kafka.conftest import Run
from tests.unit.gateway.kafka.fake_broker import FakeBroker, FakeCluster, Hangup, Request

GATEWAY = GatewayAddresses(Address("gateway.test", 9092))
REFRESH_S = 0.05
HEARTBEAT_REQUEST = HeartbeatRequest("group", 1, "member")


def client(bootstrap: str, gateway: GatewayAddresses = GATEWAY, refresh_s: float = REFRESH_S) -> KafkaCluster:
    return KafkaCluster(parse_bootstrap(bootstrap), KafkaClientSettings(), gateway, refresh_s=refresh_s)


@contextlib.asynccontextmanager
async def started(
    bootstrap: str, gateway: GatewayAddresses = GATEWAY, refresh_s: float = REFRESH_S
) -> AsyncIterator[KafkaCluster]:
    cluster = client(bootstrap, gateway, refresh_s)
    try:
        await cluster.start(timeout_s=10)
        yield cluster
    finally:
        await cluster.close()


@contextlib.asynccontextmanager
async def three_brokers(*, transparent: bool = False) -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as kafka:
        await kafka.add(1, 2, 3)
        if transparent:
            kafka.advertised = {node_id: GATEWAY.of(node_id) for node_id in kafka.nodes}
        for node_id in kafka.nodes:
            name_itself(kafka, node_id)
        yield kafka


def name_itself(kafka: FakeCluster, node_id: int) -> None:
    kafka.nodes[node_id].answer(HEARTBEAT, lambda _: HeartbeatResponse(throttle_time_ms=node_id))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # of objects that have no event
        await asyncio.sleep(0.01)


async def who_answers(cluster: KafkaCluster, node_id: int) -> int:
    response: HeartbeatResponse = await cluster.ask(node_id, HEARTBEAT_REQUEST)
    return response.throttle_time_ms


async def refused(bootstrap: str, gateway: GatewayAddresses = GATEWAY) -> str:
    cluster = client(bootstrap, gateway)
    try:
        with pytest.raises(KafkaSetupError) as raised:
            await cluster.start(timeout_s=5)
    finally:
        await cluster.close()
    return str(raised.value)


# -- start -------------------------------------------------------------------------------------------------------------


def test_one_address_is_enough_to_find_all_brokers(run: Run) -> None:
    async def scenario() -> None:
        async with three_brokers() as kafka, started(str(kafka.nodes[2].address)) as cluster:
            assert cluster.cluster_id == "cluster-a"
            assert not cluster.brokers.is_transparent
            assert cluster.brokers.node_ids == (1, 2, 3)
            assert cluster.brokers.upstream(3) == kafka.nodes[3].address
            assert cluster.brokers.advertised(3) == ("gateway.test", 9096)
            assert [await who_answers(cluster, node_id) for node_id in (1, 2, 3)] == [1, 2, 3]

    run(scenario())


def test_a_kafka_that_starts_later_is_waited_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_START_RETRY_S", 0.05)

    async def scenario() -> None:
        with held_port() as held:
            address = Address(*held.getsockname())
            cluster = client(str(address))
            starting = asyncio.create_task(cluster.start(timeout_s=30))
            await asyncio.sleep(0.2)
            assert not starting.done()
            async with FakeCluster() as kafka:
                broker = FakeBroker()
                broker.address = address
                kafka.assign(1, broker)
                await broker.start()
                await asyncio.sleep(0.2)  # Metadata lists no broker yet
                assert not starting.done()
                kafka.advertised[1] = address
                await starting
                assert cluster.brokers.node_ids == (1,)
                await cluster.close()

    run(scenario())


def test_a_kafka_that_cannot_be_reached(run: Run) -> None:
    async def scenario() -> None:
        with held_port() as held:
            cluster = client(str(Address(*held.getsockname())))
            with pytest.raises(KafkaUnreachable, match=r"no address of --kafka can be used: .* Connection refused"):
                await cluster.start(timeout_s=0.5)
            await cluster.close()

    run(scenario())


def test_two_clusters_are_refused(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as one, FakeCluster("cluster-b") as other:
            await one.add(1)
            await other.add(1)
            text = await refused(f"{one.bootstrap},{other.bootstrap}")
            assert text == (
                f"--kafka has brokers of two clusters: {one.bootstrap} is of cluster cluster-a, and {other.bootstrap} "
                "of cluster cluster-b: give the addresses of one cluster"
            )

    run(scenario())


def test_two_listeners_are_refused(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as one, FakeCluster() as other:
            await one.add(1)
            await other.add(1)
            assert "are of different listeners" in await refused(f"{one.bootstrap},{other.bootstrap}")

    run(scenario())


def test_a_mixture_of_modes_is_refused(run: Run) -> None:
    async def scenario() -> None:
        async with three_brokers() as kafka:
            kafka.advertised[2] = GATEWAY.of(2)
            assert "broker 2 advertises the gateway's address" in await refused(kafka.bootstrap)

    run(scenario())


def test_the_gateway_by_another_name_is_refused(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as kafka:
            await kafka.add(1)
            by_name = GatewayAddresses(Address("localhost", 9092))
            kafka.advertised[1] = Address("127.0.0.1", 9094)
            assert "an address of the gateway itself" in await refused(kafka.bootstrap, by_name)

    run(scenario())


# -- transparent mode --------------------------------------------------------------------------------------------------


def test_brokers_are_recognised_when_kafka_advertises_the_gateway(run: Run) -> None:
    async def scenario() -> None:
        async with three_brokers(transparent=True) as kafka, started(kafka.bootstrap) as cluster:
            assert cluster.brokers.is_transparent
            assert cluster.brokers.node_ids == (1, 2, 3)
            for node_id, broker in kafka.nodes.items():
                assert cluster.brokers.upstream(node_id) == broker.address
                assert await who_answers(cluster, node_id) == node_id

    run(scenario())


def test_a_broker_without_an_address_is_refused(run: Run) -> None:
    async def scenario() -> None:
        async with three_brokers(transparent=True) as kafka:
            some = f"{kafka.nodes[1].address},{kafka.nodes[3].address}"
            assert await refused(some) == (
                "--kafka has no address of broker 2, and the brokers advertise the gateway instead of their own "
                "address: add HOST:PORT or ID=HOST:PORT of every broker, on the listener for the gateway"
            )

    run(scenario())


def test_a_broker_whose_address_does_not_answer_may_answer_later(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_START_RETRY_S", 0.05)

    async def scenario() -> None:
        async with three_brokers(transparent=True) as kafka:
            bootstrap = kafka.bootstrap
            await kafka.nodes[2].stop()
            cluster = client(bootstrap)
            with pytest.raises(KafkaUnreachable, match=r"no address of broker 2, .* do not answer: .*refused"):
                await cluster.start(timeout_s=0.5)
            starting = asyncio.create_task(cluster.start(timeout_s=30))
            await asyncio.sleep(0.1)
            await kafka.nodes[2].start()
            await starting
            assert cluster.brokers.node_ids == (1, 2, 3)
            await cluster.close()

    run(scenario())


def test_addresses_with_ids_need_no_right_to_describe_configs(run: Run) -> None:
    async def scenario() -> None:
        async with three_brokers(transparent=True) as kafka:
            kafka.may_describe_configs = False
            text = await refused(kafka.bootstrap)
            assert "CLUSTER_AUTHORIZATION_FAILED: give --kafka ID=HOST:PORT" in text
            given = ",".join(f"{node_id}={broker.address}" for node_id, broker in kafka.nodes.items())
            async with started(given) as cluster:
                assert [await who_answers(cluster, node_id) for node_id in (1, 2, 3)] == [1, 2, 3]

    run(scenario())


def test_addresses_with_ids_that_are_wrong_are_refused(run: Run) -> None:
    async def scenario() -> None:
        async with three_brokers(transparent=True) as kafka:
            one, two, three = (kafka.nodes[node_id].address for node_id in (1, 2, 3))
            text = await refused(f"2={one},1={two},3={three}")
            assert text == (
                f"--kafka has 2={one}, but broker 2 is not at this address: correct the ids in --kafka"
            ) or text.startswith(f"--kafka has 1={two}")

    run(scenario())


def test_a_given_broker_that_is_down_does_not_keep_the_gateway_from_starting(run: Run) -> None:
    async def scenario() -> None:
        async with three_brokers(transparent=True) as kafka:
            given = ",".join(f"{node_id}={broker.address}" for node_id, broker in kafka.nodes.items())
            await kafka.nodes[3].stop()
            async with started(given) as cluster:
                assert cluster.brokers.node_ids == (1, 2, 3)
                with pytest.raises(KafkaUnreachable, match="refused"):
                    await cluster.ask(3, HEARTBEAT_REQUEST)

    run(scenario())


def test_brokers_that_change_places_are_found_again(run: Run) -> None:
    async def scenario() -> None:
        async with three_brokers(transparent=True) as kafka, started(kafka.bootstrap) as cluster:
            one, two = kafka.nodes[1], kafka.nodes[2]
            assert await who_answers(cluster, 1) == 1
            await one.stop()
            await two.stop()
            kafka.assign(1, two)
            kafka.assign(2, one)
            name_itself(kafka, 1)
            name_itself(kafka, 2)
            await one.start()
            await two.start()

            await until(lambda: cluster.brokers.upstream(1) == two.address)
            await until(lambda: cluster.brokers.upstream(2) == one.address)
            assert [await who_answers(cluster, node_id) for node_id in (1, 2, 3)] == [1, 2, 3]

    run(scenario())


def test_a_new_broker_is_found_among_the_addresses(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with three_brokers(transparent=True) as kafka:
            bootstrap = kafka.bootstrap
            listed = kafka.advertised.pop(3)
            async with started(bootstrap) as cluster:
                assert cluster.brokers.node_ids == (1, 2)
                kafka.advertised |= {3: listed, 4: GATEWAY.of(4), 5: Address("elsewhere", 9095)}
                await until(lambda: len(cluster.brokers.node_ids) == 3)
                assert await who_answers(cluster, 3) == 3
                await until(lambda: len(caplog.records) >= 2)
                await asyncio.sleep(3 * REFRESH_S)

    with caplog.at_level(logging.ERROR):
        run(scenario())
    reasons = [str(getattr(record, "fields", {}).get("reason")) for record in caplog.records]
    assert len([reason for reason in reasons if "no address of broker 4" in reason]) == 1
    assert len([reason for reason in reasons if "broker 5 advertises elsewhere:9095 to clients" in reason]) == 1


# -- following the brokers ---------------------------------------------------------------------------------------------


def test_brokers_that_come_go_and_move_are_followed(run: Run) -> None:
    async def scenario() -> None:
        async with three_brokers() as kafka, started(kafka.bootstrap) as cluster:
            changes: list[tuple[int, ...]] = []
            cluster.brokers.on_changed(lambda: changes.append(tuple(cluster.brokers.node_ids)))
            await kafka.add(4)
            name_itself(kafka, 4)
            await until(lambda: 4 in cluster.brokers)
            assert await who_answers(cluster, 4) == 4

            await kafka.remove(1)
            await until(lambda: 1 not in cluster.brokers)
            with pytest.raises(KafkaUnreachable, match="lists no broker 1"):
                await cluster.connection(1)

            shared = await cluster.connection(2)
            moved = FakeBroker()
            old = kafka.nodes[2]
            kafka.assign(2, moved)
            name_itself(kafka, 2)
            await moved.start()
            kafka.advertised[2] = moved.address
            await until(lambda: cluster.brokers.upstream(2) == moved.address)
            assert shared.is_closed
            assert await who_answers(cluster, 2) == 2
            assert moved.asked(HEARTBEAT) == 1
            assert changes == [(1, 2, 3, 4), (2, 3, 4), (2, 3, 4)]
            await old.stop()

    run(scenario())


def test_a_new_broker_is_looked_for_before_it_is_called_unknown(run: Run) -> None:
    async def scenario() -> None:
        async with three_brokers() as kafka, started(kafka.bootstrap, refresh_s=3600) as cluster:
            await kafka.add(4)
            name_itself(kafka, 4)
            assert await who_answers(cluster, 4) == 4

    run(scenario())


def test_brokers_that_list_nobody_or_another_cluster_change_nothing(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with three_brokers() as kafka, started(kafka.bootstrap) as cluster:
            listed, kafka.advertised = kafka.advertised, {}
            with pytest.raises(KafkaUnreachable, match="lists no broker"):
                await cluster.refresh()
            kafka.advertised = {9: Address("elsewhere", 1)}
            kafka.cluster_id = "cluster-b"
            with pytest.raises(KafkaUnreachable, match="a broker of cluster cluster-b answers"):
                await cluster.refresh()
            await asyncio.sleep(3 * REFRESH_S)
            assert cluster.brokers.node_ids == (1, 2, 3)
            kafka.advertised, kafka.cluster_id = listed, "cluster-a"
            await until(lambda: "fetched again" in caplog.text)

    with caplog.at_level(logging.INFO):
        run(scenario())
    assert caplog.text.count("cannot be fetched") == 1


# -- connections -------------------------------------------------------------------------------------------------------


def test_concurrent_callers_share_one_connection(run: Run) -> None:
    async def scenario() -> None:
        async with three_brokers() as kafka, started(str(kafka.nodes[2].address), refresh_s=3600) as cluster:
            found = await asyncio.gather(*(cluster.connection(1) for _ in range(10)))
            assert len(set(found)) == 1
            assert kafka.nodes[1].connections == 1

            own = await cluster.open_connection(1)
            assert own is not found[0]
            assert (own.node_id, kafka.nodes[1].connections) == (1, 2)
            own.close()

    run(scenario())


def test_a_lost_connection_is_made_again(run: Run) -> None:
    async def scenario() -> None:
        async with three_brokers() as kafka, started(kafka.bootstrap, refresh_s=3600) as cluster:
            first = await cluster.connection(1)
            kafka.nodes[1].hang_up()
            await until(lambda: first.is_closed)
            assert await who_answers(cluster, 1) == 1
            assert await cluster.connection(1) is not first

    run(scenario())


def test_a_broker_that_closes_every_connection_is_not_asked_at_once_again(run: Run) -> None:
    async def scenario() -> None:
        async with three_brokers() as kafka, started(str(kafka.nodes[2].address), refresh_s=3600) as cluster:

            def hang_up(_: Request) -> None:
                raise Hangup

            kafka.nodes[1].answer(HEARTBEAT, hang_up)
            loop = asyncio.get_running_loop()
            began = loop.time()
            for _ in range(5):
                with pytest.raises(KafkaUnreachable):
                    await cluster.ask(1, HEARTBEAT_REQUEST)
            least_s = pool._BACKOFF_S[0]
            assert loop.time() - began > least_s * (1 + 2 + 4) / 2

    run(scenario())


def test_waiting_for_a_connection_has_a_deadline(run: Run) -> None:
    async def scenario() -> None:
        async with three_brokers() as kafka, started(str(kafka.nodes[2].address), refresh_s=3600) as cluster:
            with socket.create_server(("127.0.0.1", 0)) as silent:
                kafka.advertised[1] = Address(*silent.getsockname())
                await cluster.refresh()
                with pytest.raises(KafkaUnreachable, match=r"connecting to broker 1 took longer than 0\.2 s"):
                    await cluster.ask(1, HEARTBEAT_REQUEST, timeout_s=0.2)
                await cluster.close()

    run(scenario())


def test_any_broker_answers_when_others_do_not(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LEAST_SHARE_S", 0.1)

    async def scenario() -> None:
        async with three_brokers() as kafka, started(kafka.bootstrap, refresh_s=3600) as cluster:
            first = (await cluster.ask_any(HEARTBEAT_REQUEST)).throttle_time_ms
            again = (await cluster.ask_any(HEARTBEAT_REQUEST)).throttle_time_ms
            assert first == again  # the one that answered, and has a connection
            kafka.nodes[first].answer(HEARTBEAT, lambda _: None)
            second = (await cluster.ask_any(HEARTBEAT_REQUEST, timeout_s=1)).throttle_time_ms
            await kafka.nodes[second].stop()
            kafka.nodes[second].address = Address("127.0.0.1", 0)
            third = (await cluster.ask_any(HEARTBEAT_REQUEST, timeout_s=3)).throttle_time_ms
            assert {first, second, third} == {1, 2, 3}
            await kafka.nodes[third].stop()
            with pytest.raises(KafkaUnreachable, match=r"no broker answers: .*; .*; .*"):
                await cluster.ask_any(HEARTBEAT_REQUEST, timeout_s=1)

    run(scenario())


def test_the_bootstrap_addresses_are_used_when_all_brokers_have_moved(run: Run) -> None:
    async def scenario() -> None:
        async with FakeCluster() as kafka:
            await kafka.add(1)
            entrance = FakeBroker()
            entrance.answer(METADATA, kafka._metadata)
            async with entrance, started(str(entrance.address), refresh_s=3600) as cluster:
                await kafka.nodes[1].stop()
                await kafka.add(2)
                del kafka.advertised[1]
                await cluster.refresh()
                assert cluster.brokers.node_ids == (2,)

    run(scenario())


def test_a_refusal_is_not_retried_elsewhere(run: Run) -> None:
    async def scenario() -> None:
        async with three_brokers() as kafka, started(kafka.bootstrap) as cluster:
            with pytest.raises(KafkaRefused, match="cannot carry"):
                await cluster.ask_any(HeartbeatRequest("group", 1, "member", "instance"), version=0)

    run(scenario())


def test_closing_ends_callers_and_connections(run: Run) -> None:
    async def scenario() -> None:
        async with three_brokers() as kafka, started(kafka.bootstrap, refresh_s=3600) as cluster:
            shared, own = await cluster.connection(1), await cluster.open_connection(2)
            kafka.nodes[3].answer(HEARTBEAT, lambda _: None)
            waiting = asyncio.create_task(cluster.ask(3, HEARTBEAT_REQUEST))
            finding = asyncio.create_task(cluster.coordinator_of("group", 0))
            await asyncio.sleep(0.05)
            await cluster.close()

            assert shared.is_closed
            assert own.is_closed
            for task in (waiting, finding):
                with pytest.raises(KafkaUnreachable, match="closed"):
                    await task
            for call in (cluster.connection(1), cluster.open_connection(1), cluster.refresh()):
                with pytest.raises(KafkaUnreachable, match="closed"):
                    await call

    run(scenario())


# -- leaders -----------------------------------------------------------------------------------------------------------


def test_leaders_are_remembered_until_a_refresh(run: Run) -> None:
    async def scenario() -> None:
        async with three_brokers() as kafka, started(kafka.bootstrap, refresh_s=3600) as cluster:
            kafka.leaders["state"] = [1, 2, -1]
            before = kafka.asked(METADATA)
            found = await asyncio.gather(*(cluster.leader_of("state", number % 2) for number in range(10)))
            assert found == [1, 2] * 5
            assert kafka.asked(METADATA) == before + 1

            kafka.leaders["state"] = [3, 3, -1]
            assert await cluster.leader_of("state", 0) == 1
            found = await asyncio.gather(*(cluster.leader_of("state", number, refresh=True) for number in (0, 1, 0)))
            assert found == [3, 3, 3]
            assert kafka.asked(METADATA) == before + 2
            for partition in (2, 3):
                with pytest.raises(KafkaUnreachable, match=f"partition {partition} of topic 'state' has no leader"):
                    await cluster.leader_of("state", partition)

    run(scenario())


def test_a_leader_that_is_gone_is_asked_for_again(run: Run) -> None:
    async def scenario() -> None:
        async with three_brokers() as kafka, started(kafka.bootstrap) as cluster:
            kafka.leaders["state"] = [1]
            assert await cluster.leader_of("state", 0) == 1
            await kafka.remove(1)
            kafka.leaders["state"] = [2]
            await until(lambda: 1 not in cluster.brokers)
            assert await cluster.leader_of("state", 0) == 2

    run(scenario())


def test_topics_that_do_not_exist_yet_and_those_that_may_not_be_seen(run: Run) -> None:
    async def scenario() -> None:
        async with three_brokers() as kafka, started(kafka.bootstrap, refresh_s=3600) as cluster:
            with pytest.raises(KafkaUnreachable, match="UNKNOWN_TOPIC_OR_PARTITION"):
                await cluster.leader_of("state", 0)

            def hidden(request: Request) -> MetadataResponse:
                response = kafka._metadata(request)
                for topic in response.topics:
                    topic.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                return response

            for broker in kafka.nodes.values():
                broker.answer(METADATA, hidden)
            with pytest.raises(KafkaRefused, match="TOPIC_AUTHORIZATION_FAILED") as raised:
                await cluster.leader_of("state", 0)
            assert raised.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            requests = [request for broker in kafka.nodes.values() for request in broker.requests]
            assert not any(one.message.allow_auto_topic_creation for one in requests if one.api is METADATA)

    run(scenario())


# -- coordinators ------------------------------------------------------------------------------------------------------


def test_coordinators_are_remembered_until_a_refresh(run: Run) -> None:
    async def scenario() -> None:
        async with three_brokers() as kafka, started(kafka.bootstrap, refresh_s=3600) as cluster:
            kafka.coordinators = {"group": 2}
            assert await asyncio.gather(*(cluster.coordinator_of("group", 0) for _ in range(5))) == [2] * 5
            kafka.coordinators = {"group": 3}
            assert await cluster.coordinator_of("group", 0) == 2
            assert await cluster.coordinator_of("group", 1) == 3  # another type is another key
            assert await cluster.coordinator_of("group", 0, refresh=True) == 3
            assert kafka.asked(FIND_COORDINATOR) == 3

    run(scenario())


def test_a_coordinator_that_is_not_available_yet_is_waited_for(run: Run) -> None:
    async def scenario() -> None:
        async with three_brokers() as kafka, started(kafka.bootstrap) as cluster:
            finding = asyncio.create_task(cluster.coordinator_of("group", 0))
            await until(lambda: kafka.asked(FIND_COORDINATOR) >= 2)
            kafka.coordinators["group"] = 1
            assert await finding == 1
            with pytest.raises(KafkaUnreachable, match="group 'other' is answered with COORDINATOR_NOT_AVAILABLE"):
                await cluster.coordinator_of("other", 0, timeout_s=0.3)
            kafka.coordinators["secret"] = ErrorCode.GROUP_AUTHORIZATION_FAILED
            with pytest.raises(KafkaRefused, match="GROUP_AUTHORIZATION_FAILED") as raised:
                await cluster.coordinator_of("secret", 0)
            assert raised.value.code == ErrorCode.GROUP_AUTHORIZATION_FAILED

    run(scenario())


def test_a_broker_without_batched_find_coordinator_is_asked_in_the_old_way(run: Run) -> None:
    async def scenario() -> None:
        async with three_brokers() as kafka:
            kafka.coordinators = {"group": 2}
            for broker in kafka.nodes.values():
                broker.limit(FIND_COORDINATOR, 0, 3)
            async with started(kafka.bootstrap) as cluster:
                assert await cluster.coordinator_of("group", 0) == 2
                with pytest.raises(KafkaUnreachable, match="COORDINATOR_NOT_AVAILABLE"):
                    await cluster.coordinator_of("other", 0, timeout_s=0.3)

    run(scenario())


def test_rewriting_mode_does_not_ask_for_configs(run: Run) -> None:
    async def scenario() -> None:
        async with three_brokers() as kafka, started(kafka.bootstrap) as cluster:
            await asyncio.gather(*map(cluster.connection, (1, 2, 3)))
            await asyncio.sleep(2 * REFRESH_S)
            assert kafka.asked(DESCRIBE_CONFIGS) == 0

    run(scenario())
