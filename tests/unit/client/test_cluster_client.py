"""Finding brokers and keeping to them, in front of scripted ones."""

import random
import threading
import time
from collections.abc import Callable, Mapping

import pytest

from holdfast.client.addresses import Address
from holdfast.client.cluster_client import ClusterClient
from holdfast.client.errors import AuthenticationFailed, ConnectionFailed, ConnectionLost, GroupError
from holdfast.client.runtime import SYSTEM
from holdfast.client.settings import NetworkSettings
from holdfast.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorResponse, FoundCoordinator
from holdfast.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast.wire.apis.metadata import METADATA, MetadataResponse, MetadataResponseBroker
from holdfast.wire.apis.sasl_handshake import SaslHandshakeResponse
from holdfast.wire.error_codes import ErrorCode
from tests.support.eventually import eventually
from tests.unit.client.scripted import Peer, Request, ScriptedServer, silent, unused_address

PATIENCE_S = 20.0


def network(*bootstrap: Address, **settings: float) -> ClusterClient:
    quick = {"reconnect_backoff_s": 0.01, "reconnect_backoff_max_s": 0.05, "retry_backoff_s": 0.01}
    return ClusterClient(NetworkSettings(bootstrap, **(quick | settings)), random.Random(7), runtime=SYSTEM)  # type: ignore[arg-type]


def within(seconds: float) -> float:
    return time.monotonic() + seconds


class Cluster:
    """What scripted brokers answer; a test changes it while they run."""

    def __init__(self) -> None:
        self.nodes: dict[int, Address] = {}
        self.coordinators: list[FoundCoordinator] = []
        self.metadata_errors: list[ErrorCode] = []
        self.seen: list[Request] = []
        self.versions: Mapping[int, tuple[int, int]] = {}

    def broker(self, peer: Peer) -> None:
        peer.answer_api_versions(self.versions)
        while True:
            request = peer.request()
            self.seen.append(request)
            peer.answer(request, self.answer(request))

    def answer(self, request: Request) -> object:
        if request.api is METADATA:
            code = self.metadata_errors.pop(0) if self.metadata_errors else ErrorCode.NONE
            brokers = [MetadataResponseBroker(number, *address) for number, address in self.nodes.items()]
            return MetadataResponse(brokers=brokers, error_code=code)
        if request.api is FIND_COORDINATOR:
            found = self.coordinators.pop(0) if len(self.coordinators) > 1 else self.coordinators[0]
            if request.version >= 4:
                return FindCoordinatorResponse(coordinators=[found])
            return FindCoordinatorResponse(0, found.error_code, None, found.node_id, found.host, found.port)
        return HeartbeatResponse()


def coordinator(address: Address) -> FoundCoordinator:
    return FoundCoordinator("g", 1, *address)


def no_coordinator(code: ErrorCode, message: str | None = None) -> FoundCoordinator:
    return FoundCoordinator("g", -1, "", -1, code, message)


# -- bootstrap ---------------------------------------------------------------------------------------------------------


def test_the_first_bootstrap_server_that_answers_is_enough() -> None:
    cluster = Cluster()
    dead = unused_address()
    with ScriptedServer(cluster.broker) as server, network(dead, server.address) as client:
        cluster.nodes = {1: server.address}
        assert client.metadata(()).nodes[1].address == server.address
        assert client.nodes[1].address == server.address


def test_one_that_never_answers_does_not_eat_the_time_of_the_next() -> None:
    cluster = Cluster()
    with ScriptedServer(silent) as mute, ScriptedServer(cluster.broker) as server:
        cluster.nodes = {1: server.address}
        with network(mute.address, server.address) as client:
            assert 1 in client.metadata((), within(1.0)).nodes
            assert mute.connections == 1, "the first was not tried"


def test_when_none_answers_one_exception_names_each_address_and_what_failed_there() -> None:
    dead = unused_address()

    def closing(peer: Peer) -> None:
        peer.request()

    with (
        ScriptedServer(silent) as mute,
        ScriptedServer(closing) as rude,
        network(dead, mute.address, rude.address) as client,
    ):
        began = time.monotonic()
        with pytest.raises(ConnectionFailed) as raised:
            client.metadata((), within(3.0))
        assert time.monotonic() - began < 10
    said = str(raised.value)
    assert said.startswith("no broker can be reached: ")
    assert f"{dead}: cannot connect: Connection refused" in said
    assert f"{mute.address}: no answer to ApiVersions within" in said
    assert f"{rude.address}: closed by the broker before it answered ApiVersions" in said
    assert raised.value.retriable


def test_without_a_deadline_the_request_timeout_is_the_deadline() -> None:
    with ScriptedServer(silent) as mute, network(mute.address, request_timeout_s=0.3) as client:
        began = time.monotonic()
        with pytest.raises(ConnectionFailed, match=str(mute.address)):
            client.any()
        assert 0.25 <= time.monotonic() - began < 5


def test_a_connection_that_is_not_established_is_retried_within_the_deadline() -> None:
    cluster = Cluster()
    with ScriptedServer(silent, cluster.broker) as server:
        with network(server.address, connection_setup_timeout_s=0.2) as client:
            cluster.nodes = {1: server.address}
            assert 1 in client.metadata((), within(PATIENCE_S)).nodes
        assert server.connections == 2


def test_attempts_back_off() -> None:
    def closing(peer: Peer) -> None:
        peer.request()

    with ScriptedServer(closing) as rude:
        slow = {"reconnect_backoff_s": 0.7, "reconnect_backoff_max_s": 0.7}
        with network(rude.address, **slow) as client, pytest.raises(ConnectionFailed):
            client.any(within(3.0))
        assert 2 <= rude.connections <= 5


def test_short_requests_keep_to_the_back_off_and_to_their_deadline() -> None:
    """A thread that looks for a broker in slices must neither hammer it nor spin."""
    dead = unused_address()
    with network(dead, reconnect_backoff_s=60.0, reconnect_backoff_max_s=60.0) as client:
        with pytest.raises(ConnectionFailed):
            client.any(within(0.1))
        began = time.monotonic()
        with pytest.raises(ConnectionFailed, match=f"{dead}: cannot connect: Connection refused"):
            client.any(within(0.2))
        assert time.monotonic() - began >= 0.19


def test_a_broker_that_comes_up_meanwhile_is_found() -> None:
    cluster = Cluster()
    with (
        ScriptedServer(lambda peer: None, lambda peer: None, cluster.broker) as server,
        network(server.address) as client,
    ):
        cluster.nodes = {1: server.address}
        assert 1 in client.metadata((), within(PATIENCE_S)).nodes


def test_a_failed_authentication_is_not_retried() -> None:
    def script(peer: Peer) -> None:
        peer.answer_api_versions()
        peer.answer(peer.request(), SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE))

    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
    with ScriptedServer(script) as server:
        config = {"bootstrap.servers": str(server.address), "sasl.password": "secret"} | settings
        with (
            ClusterClient(NetworkSettings.from_config(config), runtime=SYSTEM) as client,
            pytest.raises(AuthenticationFailed),
        ):
            client.any(within(PATIENCE_S))
        assert server.connections == 1


# -- brokers that go and come ------------------------------------------------------------------------------------------


def test_a_lost_connection_is_replaced_and_the_question_asked_again() -> None:
    cluster = Cluster()

    def once(peer: Peer) -> None:
        peer.answer_api_versions()
        peer.answer(peer.request(), MetadataResponse())
        peer.request()

    with ScriptedServer(once, cluster.broker) as server, network(server.address) as client:
        client.metadata((), within(PATIENCE_S))
        cluster.nodes = {3: server.address}
        assert 3 in client.metadata((), within(PATIENCE_S)).nodes
        assert server.connections == 2


def test_a_question_that_is_never_answered_names_the_broker() -> None:
    def script(peer: Peer) -> None:
        peer.answer_api_versions()
        silent(peer)

    with ScriptedServer(script) as server, network(server.address, request_timeout_s=0.1) as client:
        with pytest.raises(ConnectionFailed, match=f"{server.address}: no answer to Heartbeat"):
            client.ask(HeartbeatRequest("g"), within(0.5))
        assert server.connections >= 2, "it was asked again while there was time"


def test_an_earlier_failure_is_reported_rather_than_the_timeout() -> None:
    def wants_sasl(peer: Peer) -> None:
        peer.answer_api_versions()
        peer.request()

    with ScriptedServer(wants_sasl, silent) as server, network(server.address) as client:
        with pytest.raises(ConnectionFailed, match=r"a listener that wants SASL does that: see security\.protocol"):
            client.metadata((), within(0.5))
        assert server.connections >= 2, "the silent one was tried, too"


def test_a_changed_advertised_address_is_learned() -> None:
    cluster = Cluster()
    with (
        ScriptedServer(cluster.broker) as bootstrap,
        ScriptedServer(cluster.broker) as moved,
        network(bootstrap.address) as client,
    ):
        # Given broker 1 at its first address
        with ScriptedServer(cluster.broker) as first:
            cluster.nodes = {1: first.address}
            assert client.node(1, within(PATIENCE_S)).address == first.address
        # When it goes, and the cluster says where it is now
        cluster.nodes = {1: moved.address}
        client.node(1).close()
        # Then it is found there
        assert client.node(1, within(PATIENCE_S)).address == moved.address
        assert client.nodes[1].address == moved.address


def test_a_connection_to_an_address_that_is_no_longer_advertised_is_dropped() -> None:
    cluster = Cluster()
    with (
        ScriptedServer(cluster.broker) as server,
        ScriptedServer(cluster.broker) as other,
        network(server.address) as client,
    ):
        cluster.nodes = {1: server.address, 2: other.address}
        dropped = client.node(2, within(PATIENCE_S))
        kept = client.node(1, within(PATIENCE_S))
        cluster.nodes = {1: server.address}
        client.metadata((), within(PATIENCE_S))
        assert dropped.closed
        assert not kept.closed


def test_metadata_without_brokers_is_ignored() -> None:
    cluster = Cluster()
    with ScriptedServer(cluster.broker) as server, network(server.address) as client:
        cluster.nodes = {1: server.address}
        client.metadata(())
        cluster.nodes = {}
        assert client.metadata(()).nodes == {}
        assert 1 in client.nodes


def test_a_cluster_that_asks_for_it_is_bootstrapped_again() -> None:
    cluster = Cluster()
    cluster.metadata_errors = [ErrorCode.REBOOTSTRAP_REQUIRED]
    with ScriptedServer(cluster.broker) as server, network(server.address) as client:
        cluster.nodes = {1: server.address}
        assert 1 in client.metadata((), within(PATIENCE_S)).nodes


def test_an_unknown_broker_cannot_be_reached() -> None:
    cluster = Cluster()
    with ScriptedServer(cluster.broker) as server, network(server.address) as client:
        cluster.nodes = {1: server.address}
        with pytest.raises(ConnectionFailed, match="broker 9 cannot be reached"):
            client.node(9, within(0.2))


# -- coordinators ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
def test_the_coordinator_is_found_in_every_version(version: int) -> None:
    cluster = Cluster()
    cluster.versions = {FIND_COORDINATOR.key: (0, version)}
    with ScriptedServer(cluster.broker) as server, network(server.address) as client:
        cluster.coordinators = [coordinator(server.address)]
        found = client.find_coordinator("g", within(PATIENCE_S))
        assert (found.node_id, found.address) == (1, server.address)
        (asked,) = (request for request in cluster.seen if request.api is FIND_COORDINATOR)
        assert asked.version == version
        assert (asked.message.coordinator_keys or [asked.message.key]) == ["g"]


def test_the_coordinator_has_a_connection_of_its_own() -> None:
    cluster = Cluster()
    with ScriptedServer(cluster.broker) as server, network(server.address) as client:
        cluster.nodes = {1: server.address}
        cluster.coordinators = [coordinator(server.address)]
        mine, yours, shared = client.coordinator("g"), client.coordinator("h"), client.any()
        assert len({id(mine), id(yours), id(shared)}) == 3
        assert mine.ask(HeartbeatRequest("g")).error_code == 0
        assert server.connections == 3


def test_a_coordinator_that_is_not_there_yet_is_waited_for() -> None:
    cluster = Cluster()
    with ScriptedServer(cluster.broker) as server, network(server.address) as client:
        codes = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        cluster.coordinators = [*map(no_coordinator, codes), coordinator(server.address)]
        assert client.find_coordinator("g", within(PATIENCE_S)).address == server.address
        assert [request.api for request in cluster.seen] == [FIND_COORDINATOR] * 3


def test_a_coordinator_that_never_comes_is_a_group_error_at_the_deadline() -> None:
    cluster = Cluster()
    cluster.coordinators = [no_coordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE, "still starting")]
    with ScriptedServer(cluster.broker) as server, network(server.address) as client:
        said = r"coordinator of group 'g' cannot be found: COORDINATOR_NOT_AVAILABLE \(still starting\)"
        with pytest.raises(GroupError, match=said) as raised:
            client.coordinator("g", within(0.3))
        assert raised.value.retriable


def test_a_client_that_may_not_see_the_group_gets_the_error_at_once() -> None:
    cluster = Cluster()
    cluster.coordinators = [no_coordinator(ErrorCode.GROUP_AUTHORIZATION_FAILED)]
    with ScriptedServer(cluster.broker) as server, network(server.address) as client:
        with pytest.raises(GroupError, match="GROUP_AUTHORIZATION_FAILED") as raised:
            client.coordinator("g", within(PATIENCE_S))
        assert raised.value.code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert not raised.value.retriable
        assert len(cluster.seen) == 1


def test_a_coordinator_that_moved_while_it_was_looked_for_is_found_where_it_is() -> None:
    cluster = Cluster()
    with ScriptedServer(cluster.broker) as server, network(server.address) as client:
        cluster.coordinators = [coordinator(unused_address()), coordinator(server.address)]
        assert client.coordinator("g", within(PATIENCE_S)).address == server.address


def test_an_unreachable_coordinator_is_named() -> None:
    cluster = Cluster()
    gone = unused_address()
    cluster.coordinators = [coordinator(gone)]
    with ScriptedServer(cluster.broker) as server, network(server.address) as client:
        said = f"coordinator of group 'g' cannot be reached: {gone}: cannot connect"
        with pytest.raises(ConnectionFailed, match=said):
            client.coordinator("g", within(0.3))


# -- other threads -----------------------------------------------------------------------------------------------------


def ended_by(act: Callable[[], None], wait: Callable[[], object]) -> tuple[object, float]:
    """Waits in a thread, acts meanwhile, and returns the outcome and how long it took."""
    outcome: list[object] = []
    inside = threading.Event()

    def run() -> None:
        inside.set()
        try:
            outcome.append(wait())
        except Exception as failure:  # noqa: BLE001  # it is what the test looks at
            outcome.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    assert inside.wait(PATIENCE_S)
    began = time.monotonic()
    act()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    return outcome[0], time.monotonic() - began


def test_wake_ends_a_pause() -> None:
    with network(unused_address()) as client:
        woken, took = ended_by(client.wake, lambda: client.pause(PATIENCE_S))
        assert woken is True
        assert took < PATIENCE_S / 2
        assert client.pause(0.01) is False, "the call was taken"


def test_wake_does_not_end_the_search_for_a_broker_and_is_kept_for_the_next_wait() -> None:
    dead = unused_address()
    with network(dead) as client:
        failure, took = ended_by(client.wake, lambda: client.any(within(0.4)))
        assert isinstance(failure, ConnectionFailed)
        assert took >= 0.3
        assert client.pause(PATIENCE_S) is True


@pytest.mark.parametrize("what", ["search", "half-open", "pause", "parked"])
def test_close_ends_whatever_waits_at_once(what: str) -> None:
    def script(peer: Peer) -> None:
        if what == "parked":
            peer.answer_api_versions()
        silent(peer)

    with ScriptedServer(script) as server:
        address = unused_address() if what == "search" else server.address
        client = network(address, reconnect_backoff_s=30.0, reconnect_backoff_max_s=30.0)
        waits: dict[str, Callable[[], object]] = {
            "search": lambda: client.any(within(2 * PATIENCE_S)),
            "half-open": lambda: client.any(within(PATIENCE_S)),
            "pause": lambda: client.pause(PATIENCE_S),
            "parked": lambda: client.open(address).receive(within(PATIENCE_S)),
        }
        outcome, took = ended_by(client.close, waits[what])
        assert outcome is True if what == "pause" else isinstance(outcome, ConnectionLost)
        assert took < PATIENCE_S / 2
        assert client.closed
        with pytest.raises(ConnectionLost, match="the client has been closed"):
            client.any()
        eventually(lambda: not [one for one in client._open if not one.closed], "no connection is left open")
