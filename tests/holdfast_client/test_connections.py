"""The wires of the client on real brokers: finding them, asking them, and outliving their restarts."""

import contextlib
import copy
import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.connection import Connection
from holdfast.client.errors import AuthenticationFailed, ConnectionFailed, ConnectionLost, RequestTimedOut
from holdfast.client.metadata import topic_pattern
from holdfast.client.runtime import SYSTEM
from holdfast.client.settings import NetworkSettings
from holdfast.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from holdfast.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest
from holdfast.wire.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from holdfast.wire.apis.heartbeat import HeartbeatRequest
from holdfast.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from holdfast.wire.apis.sync_group import SyncGroupRequest
from holdfast.wire.error_codes import ErrorCode
from tests.client_compat.servers import Server
from tests.holdfast_client.conftest import BOTH_SERVERS, own_broker
from tests.holdfast_client.connections import PATIENCE_S, coordinator, patiently
from tests.support.apache_kafka import ApacheKafka
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.tcp_proxy import TcpProxy

TRIED_FOR_S = 6.0
"""It is tried again until then; one attempt must have come to its end, however slow the machine is."""


def network(bootstrap: str, **settings: object) -> ClusterClient:
    return ClusterClient(NetworkSettings.from_config({"bootstrap.servers": bootstrap} | settings), runtime=SYSTEM)


@pytest.fixture
def wires(server: Server) -> Iterator[ClusterClient]:
    with network(server.bootstrap) as client:
        yield client


def create(client: ClusterClient, name: str, partitions: int) -> None:
    response = client.ask(CreateTopicsRequest([CreatableTopic(name, partitions, 1)], 30_000), patiently())
    assert [topic.error_code for topic in response.topics] == [0]
    eventually(lambda: name in client.metadata([name], patiently()).topics, f"{name} is there")


def join(group: str, member_id: str = "", protocol: bytes = b"") -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol("p", protocol)]
    return JoinGroupRequest(group, 60_000, 60_000, member_id, protocol_type="test", protocols=protocols)


def member_id(connection: Connection, group: str) -> str:
    """The id to join with, as the coordinator gives it to a newcomer."""
    response: JoinGroupResponse = connection.ask(join(group), patiently())
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    return response.member_id


# -- asking ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(API_VERSIONS.versions[1] + 1))
def test_every_version_of_api_versions_says_the_same(wires: ClusterClient, version: int) -> None:
    connection = wires.any(patiently())
    response = connection.ask(ApiVersionsRequest("holdfast", "1"), patiently(), version)
    said = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}
    assert said == connection.versions


def test_a_future_version_is_refused_with_an_understandable_answer(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What happens to us when a broker is older than we: here we are the newer one by one made-up version."""
    host, port = server.bootstrap.split(":")
    monkeypatch.setattr(API_VERSIONS, "versions", (0, 5))
    monkeypatch.setattr(ApiVersionsRequest, "VERSIONS", (0, 5))
    made_up = copy.copy(API_VERSIONS.request.encoders)  # or the made-up one would stay among the others
    monkeypatch.setattr(ApiVersionsRequest, "encoders", made_up)
    with Connection(host, int(port), runtime=SYSTEM) as connection:
        connection.connect(patiently())
        assert connection.versions[API_VERSIONS.key] == (0, 4)
        assert connection.ask(HeartbeatRequest("g", 1, "m"), patiently()).error_code in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        )


def test_many_questions_at_once_are_answered_each(wires: ClusterClient, group: str) -> None:
    with coordinator(wires, group) as connection:
        sent = [connection.send(HeartbeatRequest(group, number, "nobody")) for number in range(100)]
        received = [connection.receive(patiently()) for _ in sent]
    assert [answer and answer[0] for answer in received] == sent
    assert {answer and answer[1].error_code for answer in received} == {ErrorCode.UNKNOWN_MEMBER_ID}


def test_sasl_on_a_listener_without_is_said_clearly(server: Server) -> None:
    config = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
    guarded = network(server.bootstrap, **config, **{"sasl.password": "hunter2"})
    with guarded as client, pytest.raises(AuthenticationFailed) as raised:
        client.metadata((), patiently())
    assert str(raised.value).startswith(f"{server.bootstrap}: SASL PLAIN cannot be used (ILLEGAL_SASL_STATE)")
    assert "this listener has no SASL: set security.protocol to PLAINTEXT" in str(raised.value)


def test_tls_on_a_listener_without_is_said_clearly(server: Server) -> None:
    guarded = network(server.bootstrap, **{"security.protocol": "SSL"})
    with guarded as client, pytest.raises(ConnectionFailed) as raised:
        client.metadata((), time.monotonic() + TRIED_FOR_S)
    assert f"{server.bootstrap}: the TLS handshake failed" in str(raised.value)
    assert "does this listener speak TLS?" in str(raised.value)


# -- topics ------------------------------------------------------------------------------------------------------------


def test_topics_are_seen_with_their_partitions_and_errors(wires: ClusterClient, topic: str) -> None:
    create(wires, topic, 3)
    found = wires.metadata([topic, f"{topic}-missing", "no/topic"], patiently())
    assert found.topic(topic).partitions == 3
    assert found.errors == {
        f"{topic}-missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "no/topic": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert f"{topic}-missing" not in wires.metadata(None, patiently()).topics, "asking must not create it"


def test_a_pattern_finds_new_topics_and_forgets_deleted_ones(wires: ClusterClient, topic: str) -> None:
    pattern = topic_pattern(f"^{topic}")
    for suffix in ("-a", "-b"):
        create(wires, topic + suffix, 1)
    seen = eventually(lambda: wires.metadata(None, patiently()).matching(pattern), "both topics are listed")
    assert seen == {f"{topic}-a", f"{topic}-b"}
    # When one of them is deleted
    controller = wires.node(wires.metadata((), patiently()).controller_id, patiently())
    response = controller.ask(DeleteTopicsRequest([DeleteTopicState(f"{topic}-a")], timeout_ms=30_000), patiently())
    assert [one.error_code for one in response.responses] == [0]
    # Then it is gone from the pattern, and by its name it is an error
    eventually(lambda: wires.metadata(None, patiently()).matching(pattern) == {f"{topic}-b"}, "only one is left")
    assert wires.metadata([f"{topic}-a"], patiently()).errors == {f"{topic}-a": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_internal_topics_exist_but_are_meant_by_no_pattern(wires: ClusterClient, group: str) -> None:
    # Given a group that is stored, so that Kafka has made its topic
    with coordinator(wires, group) as connection:
        member_id(connection, group)
    found = wires.metadata(None, patiently())
    assert found.topics["__consumer_offsets"].internal
    assert "__consumer_offsets" not in found.matching(topic_pattern("^.*"))


@pytest.fixture(params=BOTH_SERVERS)
def racked_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with own_broker(request, {"broker.rack": "r1"}) as broker:
        yield broker


def test_racks_are_those_of_the_replicas_brokers(racked_server: Server, topic: str) -> None:
    with network(racked_server.bootstrap) as client:
        create(client, topic, 2)
        cluster = client.metadata([topic], patiently()).cluster()
    assert cluster.racks == {topic: (frozenset({"r1"}),) * 2}


# -- the coordinator ---------------------------------------------------------------------------------------------------


def test_a_parked_join_is_awaited_in_slices_while_others_are_answered(wires: ClusterClient, group: str) -> None:
    # Given a group with one member
    first = coordinator(wires, group)
    leader = member_id(first, group)
    generation = first.ask(join(group, leader), patiently()).generation_id
    assert first.ask(SyncGroupRequest(group, generation, leader, None, "test", "p"), patiently()).error_code == 0
    # When another joins, its join is parked until the first comes back
    second = coordinator(wires, group)
    newcomer = member_id(second, group)
    parked = second.send(join(group, newcomer))
    assert second.receive(time.monotonic() + 0.3) is None
    # Then the connection beside it is free
    code = eventually(
        lambda: first.ask(HeartbeatRequest(group, generation, leader), patiently()).error_code,
        "the leader is asked to rejoin",
    )
    assert code == ErrorCode.REBALANCE_IN_PROGRESS
    assert second.receive(0.0) is None
    # And the join is answered once the first is back
    assert first.ask(join(group, leader), patiently()).generation_id == generation + 1
    received = second.receive(patiently())
    assert received is not None
    assert (received[0], received[1].generation_id) == (parked, generation + 1)


def test_a_wait_for_a_parked_join_can_be_woken_and_its_connection_closed(wires: ClusterClient, group: str) -> None:
    connection = coordinator(wires, group)
    leader = member_id(connection, group)
    generation = connection.ask(join(group, leader), patiently()).generation_id
    # Given a member whose SyncGroup waits for a leader that never syncs: it joins beside it
    other = coordinator(wires, group)
    other.send(join(group, member_id(other, group)))
    assert generation > 0
    outcomes: list[object] = []
    waiting = threading.Event()

    def wait() -> None:
        waiting.set()
        outcomes.append(other.receive(patiently()))
        try:
            other.receive(patiently())
        except ConnectionLost as lost:
            outcomes.append(lost)

    thread = threading.Thread(target=wait)
    thread.start()
    assert waiting.wait(PATIENCE_S)
    other.wake()
    eventually(lambda: outcomes == [None], "wake ends the receive")
    other.close()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert "closed by this client" in str(outcomes[1])


# -- brokers that go and come ------------------------------------------------------------------------------------------


def test_a_restart_is_survived(disposable_server: HoldfastBroker | ApacheKafka, group: str) -> None:
    with network(disposable_server.bootstrap) as client:
        connection = coordinator(client, group)
        member = member_id(connection, group)
        connection.send(join(group, member))
        # When the broker goes while a join is parked
        disposable_server.stop()
        # Then that is noticed at once, or the join was answered before
        with pytest.raises(ConnectionLost) as raised:
            while connection.receive(patiently()) is not None:
                pass
        assert str(raised.value).startswith(f"{disposable_server.bootstrap}: ")
        with pytest.raises(
            ConnectionFailed, match=f"{disposable_server.bootstrap}: cannot connect: Connection refused"
        ):
            client.coordinator(group, time.monotonic() + TRIED_FOR_S)
        # And when it is back, so are we
        disposable_server.start()
        assert client.metadata((), patiently()).nodes
        assert not coordinator(client, group).closed


def test_a_suspended_broker_is_one_clear_exception(disposable_server: HoldfastBroker | ApacheKafka) -> None:
    with network(disposable_server.bootstrap, **{"request.timeout.ms": 2_000}) as client:
        connection = client.any(patiently())
        with standing_still(disposable_server.pid):
            # An open connection: the request is not answered
            began = time.monotonic()
            with pytest.raises(RequestTimedOut, match=r"no answer to Heartbeat within \d+\.\d s$") as silent:
                connection.ask(HeartbeatRequest("g", 1, "m"), time.monotonic() + 0.5)
            # It says how long it waited, which a busy machine may have made longer.
            said = float(str(silent.value).split()[-2])
            assert said <= time.monotonic() - began + 0.05
            # A new one: the kernel accepts it, but nobody is there
            began = time.monotonic()
            with pytest.raises(ConnectionFailed) as raised:
                client.metadata(())
            assert time.monotonic() - began < 10
            assert f"{disposable_server.bootstrap}: no answer to ApiVersions within" in str(raised.value)
        assert client.metadata((), patiently()).nodes, "and it is found again when it goes on"


@contextlib.contextmanager
def standing_still(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.fixture(params=BOTH_SERVERS)
def two_servers(request: pytest.FixtureRequest) -> Iterator[tuple[Server, Server]]:
    with own_broker(request) as first, own_broker(request) as second:
        yield first, second


def test_a_broker_with_a_new_address_is_found_through_the_bootstrap_servers(
    two_servers: tuple[HoldfastBroker | ApacheKafka, HoldfastBroker | ApacheKafka], group: str
) -> None:
    first, second = two_servers
    with TcpProxy() as proxy, network(proxy.bootstrap) as client:
        # Given the broker at its first address
        proxy.forward_to(first.address)
        assert client.coordinator(group, patiently()).address == first.address
        (node_id,) = client.metadata((), patiently()).nodes
        assert client.node(node_id, patiently()).address == first.address
        # When it is gone, and the broker behind the bootstrap server has another address
        proxy.forward_to(second.address)
        first.kill()
        # Then everything is found there
        assert client.coordinator(group, patiently()).address == second.address
        assert client.metadata((), patiently()).nodes[node_id].address == second.address
        assert client.node(node_id, patiently()).address == second.address
