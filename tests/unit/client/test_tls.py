"""TLS in front of scripted servers. tests/holdfast_client/test_secured_connections.py uses a real Kafka."""

import contextlib
import ssl
import time
from dataclasses import dataclass

import pytest

from holdfast.client.connection import Connection
from holdfast.client.errors import AuthenticationFailed, ConnectionFailed, ConnectionLost, RequestTimedOut
from holdfast.client.runtime import SYSTEM
from holdfast.client.security import Security
from holdfast.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from tests.support.certificates import Authority, Certificate, make_authority
from tests.unit.client.scripted import Peer, Script, ScriptedServer, silent
from tests.unit.client.threads import in_another_thread, is_waiting

PATIENCE_S = 20.0


def patiently() -> float:
    return time.monotonic() + PATIENCE_S


@dataclass(frozen=True)
class TlsFixture:
    authority: Authority
    untrusted: Authority
    broker: Certificate
    elsewhere: Certificate
    """A broker's, for another address than the one it has."""
    client: Certificate


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> TlsFixture:
    directory = tmp_path_factory.mktemp("certificates")
    authority = make_authority(directory)
    return TlsFixture(
        authority,
        make_authority(directory, "unknown"),
        authority.sign("broker", "IP:127.0.0.1"),
        authority.sign("elsewhere", "IP:127.0.0.9"),
        authority.sign("client", "DNS:client"),
    )


def speaks_tls(
    script: Script, world: TlsFixture, *, certificate: Certificate | None = None, mutual: bool = False
) -> Script:
    """The script behind TLS; a handshake that fails is the client's to report."""
    shown = certificate or world.broker
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.certificate, shown.key)
    if mutual:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(world.authority.certificate)

    def guarded(peer: Peer) -> None:
        with contextlib.suppress(ssl.SSLError), context.wrap_socket(peer.socket, server_side=True) as wrapped:
            script(Peer(wrapped))

    return guarded


def connection(server: ScriptedServer, world: TlsFixture, **settings: str) -> Connection:
    config = {"security.protocol": "SSL", "ssl.ca.location": str(world.authority.certificate)} | settings
    return Connection(*server.address, security=Security.from_config(config), runtime=SYSTEM)


def heartbeats(peer: Peer) -> None:
    peer.answer_api_versions()
    while True:
        peer.answer(peer.request(), HeartbeatResponse())


def test_questions_and_answers_of_any_size_pass_through_tls(world: TlsFixture) -> None:
    member = JoinGroupResponseMember("m", metadata=bytes(range(256)) * 8000)

    def script(peer: Peer) -> None:
        peer.answer_api_versions()
        request = peer.request()
        assert len(request.message.reason) == 30_000
        peer.answer(request, JoinGroupResponse(members=[member]))
        peer.expect_end()

    with ScriptedServer(speaks_tls(script, world)) as server, connection(server, world) as client:
        client.connect(patiently())
        answer = client.ask(JoinGroupRequest("g", protocol_type="x", reason="r" * 30_000), patiently())
        assert answer.members == [member]


def test_decrypted_and_unread_bytes_are_pending(world: TlsFixture) -> None:
    """Two answers in one TLS record: the socket has nothing more to say, and yet there is one to be had."""

    def script(peer: Peer) -> None:
        peer.answer_api_versions()
        sent: list[bytes] = []
        requests = [peer.request(), peer.request()]
        real, peer.socket = peer.socket, Collecting(sent)  # type: ignore[assignment]  # only sendall is called
        for request in requests:
            peer.answer(request, HeartbeatResponse())
        peer.socket = real
        peer.socket.sendall(b"".join(sent))
        peer.expect_end()

    with ScriptedServer(speaks_tls(script, world)) as server, connection(server, world) as client:
        client.connect(patiently())
        first, second = client.send(HeartbeatRequest("g")), client.send(HeartbeatRequest("g"))
        assert client.receive(patiently()) == (first, HeartbeatResponse())
        assert client.pending
        assert client.receive(0.0) == (second, HeartbeatResponse())
        assert not client.pending


@dataclass
class Collecting:
    sent: list[bytes]

    def sendall(self, data: bytes) -> None:
        self.sent.append(data)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda one: one.name)
def test_a_broker_that_requires_a_client_certificate_refuses_clients_without(
    world: TlsFixture, version: ssl.TLSVersion
) -> None:
    with ScriptedServer(speaks_tls(heartbeats, world, mutual=True)) as server:
        certificate = {
            "ssl.certificate.location": str(world.client.certificate),
            "ssl.key.location": str(world.client.key),
        }
        for settings in (certificate, {}):
            client = connection(server, world, **settings)
            tls = client._security.tls
            assert tls is not None
            tls.minimum_version = tls.maximum_version = version
            if settings:
                client.connect(patiently())
                client.close()
                continue
            with pytest.raises(AuthenticationFailed, match=r"the broker ended TLS with .*see ssl\.cert"):
                client.connect(patiently())


def test_a_broker_with_a_certificate_of_an_untrusted_authority_is_refused(world: TlsFixture) -> None:
    with ScriptedServer(speaks_tls(heartbeats, world)) as server:
        client = connection(server, world, **{"ssl.ca.location": str(world.untrusted.certificate)})
        with pytest.raises(AuthenticationFailed, match=r"certificate is not accepted.*see ssl\.ca\.location"):
            client.connect(patiently())


def test_a_certificate_of_another_address_is_refused_unless_names_do_not_count(world: TlsFixture) -> None:
    with ScriptedServer(speaks_tls(heartbeats, world, certificate=world.elsewhere)) as server:
        with pytest.raises(AuthenticationFailed, match="IP address mismatch"):
            connection(server, world).connect(patiently())
        for name, value in (
            ("ssl.endpoint.identification.algorithm", "none"),
            ("enable.ssl.certificate.verification", "false"),
        ):
            with connection(server, world, **{name: value}) as client:
                client.connect(patiently())


def test_a_server_that_speaks_no_tls_is_said_to_speak_none(world: TlsFixture) -> None:
    def script(peer: Peer) -> None:
        peer.socket.recv(100)
        peer.socket.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with ScriptedServer(script) as server, pytest.raises(ConnectionFailed) as raised:
        connection(server, world).connect(patiently())
    assert "the TLS handshake failed (wrong version number); does this listener speak TLS?" in str(raised.value)


def test_a_handshake_that_never_ends_is_given_up_at_the_deadline(world: TlsFixture) -> None:
    with ScriptedServer(silent) as server, pytest.raises(RequestTimedOut, match=r"no TLS handshake within 0\.\d s"):
        connection(server, world).connect(time.monotonic() + 0.3)


@pytest.mark.parametrize("during", ["handshake", "receive"])
def test_close_by_another_thread_ends_it_at_once(world: TlsFixture, during: str) -> None:
    script = silent if during == "handshake" else speaks_tls(heartbeats, world)
    with ScriptedServer(script) as server:
        client = connection(server, world)
        if during == "receive":
            client.connect(patiently())
        closer = in_another_thread(client.close, lambda: is_waiting(client))
        began = time.monotonic()
        with pytest.raises(ConnectionLost, match="closed by this client"):
            if during == "receive":
                client.receive(patiently())
            else:
                client.connect(patiently())
        closer.join()
        assert time.monotonic() - began < PATIENCE_S / 2
