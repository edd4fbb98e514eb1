"""Listeners with TLS: who is let in, who is not, and what an unauthenticated client can hold up."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.broker.authorization.acls import Acl, Operation, ResourceType
from holdfast.wire.apis.api_versions import ApiVersionsRequest
from holdfast.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest
from holdfast.wire.apis.metadata import MetadataRequest
from holdfast.wire.apis.produce import ProduceRequest
from holdfast.wire.headers import encode_request
from tests.broker.secured_broker import SecuredBroker, client_tls
from tests.broker.serve_process import refusal
from tests.broker.wire_client import PATIENCE_S, WireClient, batch, fetch_request
from tests.support.certificates import Certificate
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HOST

TIMEOUT_MS = 1_500


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    directory = tmp_path_factory.mktemp("listeners")
    settings = {"authentication.timeout.ms": str(TIMEOUT_MS), "max.unauthenticated.connections": "20"}
    with SecuredBroker(directory, settings) as started:
        yield started


def connect(broker: SecuredBroker, listener: str = "TLS", context: ssl.SSLContext | None = None) -> WireClient:
    client = WireClient((HOST, broker.port(listener)))
    client.socket = (context or client_tls(broker.authority)).wrap_socket(client.socket, server_hostname=HOST)
    return client


def is_served(client: WireClient) -> bool:
    return bool(client.ask(ApiVersionsRequest(), 0).error_code == 0)


def refused(broker: SecuredBroker, listener: str, context: ssl.SSLContext) -> str:
    """What the client hears. In TLS 1.3 it hears it only after its own part of the handshake."""
    with pytest.raises((ssl.SSLError, ConnectionError)) as heard, connect(broker, listener, context) as client:
        is_served(client)
    return str(heard.value)


# -- let in ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda one: one.name)
def test_records_of_any_size_pass_through_tls_both_ways(broker: SecuredBroker, version: ssl.TLSVersion) -> None:
    topic = f"through-{version.name}"
    broker.grant(Acl("User:ANONYMOUS", ResourceType.TOPIC, topic, Operation.ALL))
    context = client_tls(broker.authority)
    context.minimum_version = context.maximum_version = version
    values = [bytes([size % 251]) * size for size in (1, 1000, 20_000, 900_000)]
    with connect(broker, context=context) as client:
        eventually(lambda: _created(client, topic), "the right to make it is noticed")
        for value in values:
            answer = client.produce(topic, batch(value))
            assert answer.error_code == 0, answer
        assert [record.value for record in client.fetch_all(topic)] == values
        # Pipelined: both replies may come in one record of TLS, or one reply in many.
        for _ in range(5):
            client.send(fetch_request(topic), 12)
        replies = [len(client.receive_frame()) for _ in range(5)]
        assert len(set(replies)) == 1 and replies[0] > 900_000


def _created(client: WireClient, topic: str) -> bool:
    (result,) = client.ask(CreateTopicsRequest([CreatableTopic(topic, 1, 1)], 30_000), 5).topics
    return bool(result.error_code == 0)


def test_a_slow_reader_gets_everything_and_delays_no_other_client(broker: SecuredBroker) -> None:
    topic = "slow"
    broker.grant(Acl("User:ANONYMOUS", ResourceType.TOPIC, topic, Operation.ALL))
    with connect(broker) as writer:
        eventually(lambda: _created(writer, topic), "the right to make it is noticed")
        for number in range(8):
            assert writer.produce(topic, batch(bytes([number]) * 900_000)).error_code == 0
        with connect(broker) as slow:
            slow.send(fetch_request(topic, max_bytes=1 << 24), 12)
            # Given a reply of seven megabytes that nobody reads, the others are served.
            for _ in range(20):
                assert is_served(writer)
            assert len(slow.receive_frame()) > 8 * 900_000


def test_a_listener_returns_its_own_address(broker: SecuredBroker) -> None:
    for listener in ("TLS", "OPEN"):
        client = connect(broker, listener) if listener == "TLS" else broker.connect(listener)
        with client:
            (reported,) = client.ask(MetadataRequest([]), 9).brokers
            assert (reported.host, reported.port) == (HOST, broker.port(listener))


# -- certificates of clients -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client_certificate(broker: SecuredBroker) -> Certificate:
    return broker.authority.sign("client", "DNS:client", subject="/C=IS/O=Us, Inc/CN=client one")


def test_a_client_certificate_identifies_the_user(broker: SecuredBroker, client_certificate: Certificate) -> None:
    principal = "User:CN=client one,O=Us\\, Inc,C=IS"
    broker.grant(Acl(principal, ResourceType.TOPIC, "by-certificate", Operation.ALL))
    with connect(broker, "MUTUAL", client_tls(broker.authority, client_certificate)) as client:
        eventually(lambda: _created(client, "by-certificate"), "its right is noticed")
        assert not _created(client, "somebody-elses")


def test_clients_without_a_valid_certificate_are_rejected(
    broker: SecuredBroker, client_certificate: Certificate
) -> None:
    expired = broker.authority.sign("expired-client", "DNS:client", days=-1)
    unknown_members = broker.untrusted_authority.sign("strange-client", "DNS:client")
    for certificate, said in ((None, "certificate required"), (expired, "expired"), (unknown_members, "unknown ca")):
        heard = refused(broker, "MUTUAL", client_tls(broker.authority, certificate))
        assert said in heard.lower().replace("_", " ") or "reset" in heard.lower(), heard
    for reason in ("peer did not return a certificate", "certificate has expired", "unable to get local issuer"):
        eventually(lambda reason=reason: reason in broker.log_text(), f"the log says {reason}")  # type: ignore[misc]
    # The control: with the right one.
    with connect(broker, "MUTUAL", client_tls(broker.authority, client_certificate)) as client:
        assert is_served(client)


def test_a_replaced_certificate_is_shown_to_later_connections(broker: SecuredBroker) -> None:
    def serial(client: WireClient) -> object:
        assert isinstance(client.socket, ssl.SSLSocket)
        shown = client.socket.getpeercert()
        assert shown is not None
        return shown["serialNumber"]

    with connect(broker) as before:
        old = serial(before)
        renewed = broker.authority.sign("renewed", "IP:127.0.0.1")
        whole = broker.certificate.certificate.read_bytes()
        broker.certificate.key.write_bytes(renewed.key.read_bytes())
        broker.certificate.certificate.write_bytes(renewed.certificate.read_bytes())

        def shown_now() -> object:
            with connect(broker) as client:
                return serial(client)

        eventually(lambda: shown_now() != old, "the new certificate")
        assert is_served(before), "open connections stay open"
        # When a broken one comes, the last good one stays.
        new = shown_now()
        broker.certificate.certificate.write_bytes(whole[: len(whole) // 2])
        eventually(lambda: "stays in use" in broker.log_text(), "it is refused")
        assert shown_now() == new
        broker.certificate.certificate.write_bytes(renewed.certificate.read_bytes())


def test_an_expired_certificate_of_the_brokers_own_is_refused_by_clients(broker: SecuredBroker) -> None:
    good = broker.certificate.certificate.read_bytes(), broker.certificate.key.read_bytes()
    expired = broker.authority.sign("expired-broker", "IP:127.0.0.1", days=-1)

    def is_let_in() -> bool:
        try:
            with connect(broker) as client:
                return is_served(client)
        except ssl.SSLCertVerificationError as error:
            assert "certificate has expired" in str(error)
            return False

    assert is_let_in()
    broker.certificate.key.write_bytes(expired.key.read_bytes())
    broker.certificate.certificate.write_bytes(expired.certificate.read_bytes())
    try:
        eventually(lambda: not is_let_in(), "the expired one is shown, and refused")
    finally:
        broker.certificate.key.write_bytes(good[1])
        broker.certificate.certificate.write_bytes(good[0])
    eventually(is_let_in, "the good one again")


# -- kept out ----------------------------------------------------------------------------------------------------------


def hello(version: bytes) -> bytes:
    """A ClientHello that offers nothing newer than `version`."""
    suites = b"\x00\x2f\x00\x35\xc0\x13\xc0\x14\xc0\x09\xc0\x0a"
    body = version + bytes(32) + b"\x00" + struct.pack(">H", len(suites)) + suites + b"\x01\x00"
    message = b"\x01" + len(body).to_bytes(3) + body
    return b"\x16\x03\x01" + struct.pack(">H", len(message)) + message


@pytest.mark.parametrize("version", [b"\x03\x01", b"\x03\x02"], ids=["TLS 1.0", "TLS 1.1"])
def test_an_old_version_of_tls_is_refused(broker: SecuredBroker, version: bytes) -> None:
    with broker.connect("TLS") as client:
        client.send_bytes(hello(version))
        alert = client._exactly(7)
        assert alert[:1] == b"\x15" and alert[5:] == b"\x02\x46", "a fatal alert: protocol_version"
        assert client.is_closed_by_broker()
    with broker.connect("TLS") as client:  # the control: the same with TLS 1.2 is answered otherwise
        client.send_bytes(hello(b"\x03\x03"))
        assert client._exactly(7)[5:] != b"\x02\x46"


def test_plaintext_to_a_tls_listener_is_disconnected_at_once(broker: SecuredBroker) -> None:
    with broker.connect("TLS") as client:
        began = time.monotonic()
        client.send(ApiVersionsRequest(), 0)
        with pytest.raises(ConnectionError):
            while client.socket.recv(100):
                pass
            raise ConnectionError("closed")
        assert time.monotonic() - began < PATIENCE_S / 2
    eventually(lambda: "the TLS handshake failed" in broker.log_text(), "the log says so")
    with broker.connect("OPEN") as client:  # the control
        assert is_served(client)


def test_tls_to_a_plaintext_listener_is_disconnected(broker: SecuredBroker) -> None:
    with broker.connect("OPEN") as client:
        client.send_bytes(hello(b"\x03\x03"))
        assert client.is_closed_by_broker()


def test_clients_that_do_not_finish_the_handshake_are_disconnected(broker: SecuredBroker) -> None:
    whole = hello(b"\x03\x03")
    with (
        connect(broker) as finished,
        broker.connect("TLS") as silent,
        broker.connect("TLS") as begun,
        broker.connect("TLS") as halfway,
    ):
        began = time.monotonic()
        begun.send_bytes(whole[:1])
        halfway.send_bytes(whole[:-1])
        for slow in (silent, begun, halfway):
            assert slow.is_closed_by_broker()
        assert time.monotonic() - began > TIMEOUT_MS / 1000 * 0.8
        # The control: who finished it before them may take his time.
        assert is_served(finished)


def test_clients_that_send_the_handshake_too_slowly_are_disconnected(broker: SecuredBroker) -> None:
    with broker.connect("TLS") as client:
        began = time.monotonic()
        with pytest.raises(OSError):  # any way the system says that nobody is there
            for at in range(len(hello(b"\x03\x03")) - 1):
                client.send_bytes(hello(b"\x03\x03")[at : at + 1])
                client.socket.settimeout(0.1)
                try:
                    if client.socket.recv(1) == b"":
                        raise ConnectionError("closed")
                except TimeoutError:
                    continue
        assert time.monotonic() - began < TIMEOUT_MS / 1000 + PATIENCE_S / 2


def test_many_unauthenticated_clients_do_not_keep_others_out(broker: SecuredBroker) -> None:
    crowd = [broker.connect("TLS") for _ in range(40)]
    try:
        # Given twice as many as there may be unauthenticated clients, who say nothing, the oldest have to go
        assert all(unknown.is_closed_by_broker() for unknown in crowd[:20])
        # and clients that authenticate are admitted.
        with connect(broker) as client:
            assert is_served(client)
    finally:
        for unknown in crowd:
            unknown.socket.close()


def test_a_renegotiation_and_garbage_after_the_handshake_end_the_connection(broker: SecuredBroker) -> None:
    with connect(broker) as client:
        assert is_served(client)
        raw = socket.socket(fileno=socket.dup(client.socket.fileno()))
        raw.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
        with pytest.raises((ssl.SSLError, ConnectionError)):
            client._exactly(1)
        raw.close()
    eventually(lambda: "cannot be decrypted" in broker.log_text(), "the log says so")


def test_a_broker_without_its_certificate_does_not_start(tmp_path: Path) -> None:
    said = refusal(tmp_path / "data", "--set", "ssl.certificate.location=nowhere.pem", listen="SSL://127.0.0.1:0")
    assert "cannot read a certificate and its key in nowhere.pem: No such file or directory" in said


def test_what_is_sent_before_the_handshake_is_not_taken_for_requests(broker: SecuredBroker) -> None:
    """Bytes in front of TLS must not be served as if they had come through it."""
    with broker.connect("TLS") as client:
        client.send_bytes(encode_request(ProduceRequest(acks=1, timeout_ms=1), 9, 1, "test") + hello(b"\x03\x03"))
        assert client.socket.recv(1) in (b"", b"\x15"), "closed, or an alert; never a reply"
