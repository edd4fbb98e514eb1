"""Real clients behind TLS and passwords: they work as without, and say it clearly when they are kept out."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError as AiokafkaConnectionError
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError

from holdfast import Admin, Consumer, HoldfastError
from holdfast.broker.authorization.acls import Operation
from holdfast.cli.main import main
from holdfast.client.errors import AuthenticationFailed
from holdfast.wire.apis.api_versions import ApiVersionsRequest
from holdfast.wire.error_codes import ErrorCode
from tests.broker.librdkafka_tls_probe import probe
from tests.broker.secured_broker import MECHANISMS, PASSWORDS, SecuredBroker, client_tls, user_acl
from tests.broker.wire_client import WireClient, batch
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HOST

TOPIC, SECRET_TOPIC, GROUP = "orders", "salaries", "billing"
RECORDS = 20
PATIENCE_S = 30.0

mechanisms = pytest.mark.parametrize("mechanism", MECHANISMS)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """Alice may write to and read from `orders` as a member of any group `billing…`; nobody but admin the salaries, of
    which bob may know that they are there."""
    broker = SecuredBroker(tmp_path_factory.mktemp("clients"))
    broker.grant(
        user_acl("alice", Operation.READ, topic=TOPIC),
        user_acl("alice", Operation.WRITE, topic=TOPIC),
        user_acl("alice", Operation.READ, group=GROUP, prefixed=True),
        user_acl("bob", Operation.DESCRIBE, topic=SECRET_TOPIC),
        user_acl("bob", Operation.DESCRIBE, group=GROUP, prefixed=True),
        user_acl("bob", Operation.READ, topic=TOPIC),
        user_acl("bob", Operation.READ, group="bobs"),
    )
    with broker:
        with broker.connect_as("admin") as admin:
            for topic in (TOPIC, SECRET_TOPIC):
                admin.create_topic(topic)
        yield broker


# -- librdkafka --------------------------------------------------------------------------------------------------------


@mechanisms
def test_librdkafka_produces_and_consumes_in_a_group(broker: SecuredBroker, mechanism: str) -> None:
    delivered: list[Any] = []
    producer = Producer(broker.settings("alice", mechanism) | {"enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce(TOPIC, f"{mechanism}-{number}", on_delivery=lambda error, _: delivered.append(error))
    assert (producer.flush(PATIENCE_S), delivered) == (0, [None] * RECORDS)
    reading = {"group.id": f"{GROUP}-{mechanism}", "auto.offset.reset": "earliest"}
    consumer = ConfluentConsumer(broker.settings("alice", mechanism) | reading)
    try:
        consumer.subscribe([TOPIC])
        wanted = {f"{mechanism}-{number}".encode() for number in range(RECORDS)}
        deadline = time.monotonic() + PATIENCE_S
        while wanted:
            assert time.monotonic() < deadline, f"missing: {wanted}"
            for message in consumer.consume(100, 0.2):
                assert message.error() is None, message.error()
                wanted.discard(message.value())
    finally:
        consumer.close()


@mechanisms
def test_librdkafka_reports_a_wrong_password(broker: SecuredBroker, mechanism: str) -> None:
    errors: list[KafkaError] = []
    config = broker.settings("alice", mechanism) | {"sasl.password": "wrong", "error_cb": errors.append}
    admin = AdminClient(config)
    eventually(lambda: admin.poll(0.1) or errors, "it hears so", PATIENCE_S)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert "Authentication failed" in errors[0].str()
    assert "wrong" not in errors[0].str()


def test_librdkafka_reports_missing_rights(broker: SecuredBroker) -> None:
    delivered: list[Any] = []
    producer = Producer(broker.settings("alice"))
    producer.produce(SECRET_TOPIC, b"x", on_delivery=lambda error, _: delivered.append(error and error.code()))
    producer.produce(TOPIC, b"x", on_delivery=lambda error, _: delivered.append(error and error.code()))
    assert producer.flush(PATIENCE_S) == 0
    assert sorted(delivered, key=str) == [KafkaError.TOPIC_AUTHORIZATION_FAILED, None]
    unknown = ConfluentConsumer(broker.settings("alice") | {"group.id": "payroll"})
    try:
        unknown.subscribe([TOPIC])
        message = unknown.poll(PATIENCE_S)
        refusal = None if message is None else message.error()
        assert refusal is not None and refusal.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    finally:
        unknown.close()


def test_librdkafka_rejects_a_certificate_of_an_untrusted_authority(broker: SecuredBroker) -> None:
    config = broker.settings("alice") | {"ssl.ca.location": str(broker.untrusted_authority.certificate)}
    with pytest.raises(KafkaException) as refused:
        AdminClient(config).list_topics(timeout=2)
    assert refused.value.args[0].code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT)
    assert TOPIC in AdminClient(broker.settings("alice")).list_topics(timeout=PATIENCE_S).topics, "the control"


def sees_topics(config: dict[str, Any]) -> bool:
    return TOPIC in AdminClient(config).list_topics(timeout=PATIENCE_S).topics


def complaints(config: dict[str, Any]) -> list[KafkaError]:
    """What a client hears that is not let in; it is shown nothing."""
    heard: list[KafkaError] = []
    client = AdminClient(config | {"error_cb": heard.append, "log_level": 0})
    eventually(lambda: client.poll(0.1) or heard, "a complaint", PATIENCE_S)
    try:
        shown = client.list_topics(timeout=1).topics
    except KafkaException as error:
        assert error.args[0].code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT)
    else:
        pytest.fail(f"it was let in: {shown}")
    return heard


def test_an_expired_certificate_of_the_brokers_own_is_refused_by_librdkafka(broker: SecuredBroker) -> None:
    # given a connection that was there before it expired. (librdkafka itself may open another one at any time.)
    expired = broker.authority.sign("expired-for-librdkafka", "IP:127.0.0.1", days=-1)
    with WireClient((HOST, broker.port("TLS"))) as before, ExitStack() as stack:
        before.socket = client_tls(broker.authority).wrap_socket(before.socket, server_hostname=HOST)
        assert before.ask(ApiVersionsRequest(), 0).error_code == 0
        stack.enter_context(broker.showing(expired))

        # then any client that comes later refuses to talk
        (first, *_) = complaints(broker.settings("alice"))
        assert "certificate verify failed" in first.str()
        eventually(lambda: "alert certificate expired" in broker.log_text(), "the broker logs why")

        # and the others are served: who was there, and who needs no certificate
        assert before.ask(ApiVersionsRequest(), 0).error_code == 0
        assert sees_topics(broker.settings("alice", listener="SASL"))

    # the control: with a new one the user is let in
    assert sees_topics(broker.settings("alice"))


@pytest.mark.parametrize("newest", ["TLSv1", "TLSv1.1"])
def test_librdkafka_cannot_talk_the_broker_down_to_an_old_tls(
    broker: SecuredBroker, tmp_path: Path, newest: str
) -> None:
    refused = probe(broker.settings("alice"), newest, tmp_path)
    assert refused.topics is None
    assert "alert protocol version" in refused.complaints[0], "it is the broker who refuses"
    # The control: the same client, allowed a little more.
    assert probe(broker.settings("alice"), "TLSv1.2", tmp_path).topics == [TOPIC]


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT"])
def test_librdkafka_cannot_leave_out_the_encryption(broker: SecuredBroker, protocol: str) -> None:
    def failures() -> int:
        return broker.log_text().count("the TLS handshake failed: wrong version number")

    before = failures()
    unencrypted = broker.settings("alice", "PLAIN") | {"security.protocol": protocol}
    complaints(unencrypted)
    eventually(lambda: failures() > before, "the broker has refused it", PATIENCE_S)
    assert sees_topics(unencrypted | {"security.protocol": "SASL_SSL"}), "the control"


def test_librdkafka_cannot_send_the_password_itself_where_only_scram_is_enabled(broker: SecuredBroker) -> None:
    (first, *_) = complaints(broker.settings("alice", "PLAIN", "SCRAMONLY"))
    assert first.code() == KafkaError._AUTHENTICATION
    assert "Unsupported SASL mechanism: broker's supported mechanisms: SCRAM-SHA-256" in first.str()
    assert sees_topics(broker.settings("alice", "SCRAM-SHA-256", "SCRAMONLY")), "the control"


# -- librdkafka and what is somebody else's ----------------------------------------------------------------------------


def read(config: dict[str, Any], topic: str) -> tuple[list[bytes | None], set[int]]:
    """Whatever a consumer is given of a topic until shortly after the first answer: values, and codes of errors."""
    values, codes = [], set()
    reading = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    with closing(ConfluentConsumer(config | reading)) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for message in consumer.consume(100, 1.0):
                error = message.error()
                if error is None:
                    values.append(message.value())
                else:
                    codes.add(error.code())
            if values or codes:
                deadline = min(deadline, time.monotonic() + 1.0)
    return values, codes


@pytest.mark.parametrize(
    ("user", "group"), [("alice", GROUP), ("bob", "bobs")], ids=["may-not-see-it", "may-see-that-it-is-there"]
)
def test_librdkafka_reads_nothing_of_a_topic_that_is_not_its_own(broker: SecuredBroker, user: str, group: str) -> None:
    with broker.connect_as("admin") as admin:
        assert admin.produce(SECRET_TOPIC, batch(b"a salary")).error_code == 0

    refused = read(broker.settings(user) | {"group.id": group}, SECRET_TOPIC)
    allowed, errors = read(broker.settings("admin") | {"group.id": group}, SECRET_TOPIC)

    assert refused == ([], {KafkaError.TOPIC_AUTHORIZATION_FAILED})
    assert b"a salary" in allowed and not errors, "the control"


def test_librdkafka_can_neither_join_nor_delete_a_group_without_rights(broker: SecuredBroker) -> None:
    # given a group of alice's
    group = f"{GROUP}-of-nodes"
    static = {"group.id": group, "group.instance.id": "node-1"}
    with Admin(broker.settings("admin")) as admin, closing(member(broker, "alice", static)) as owner:

        def members() -> list[str]:
            return [one.member_id for one in admin.describe_group(group).members]

        eventually(lambda: owner.poll(0.1) or owner.assignment(), "alice is a member", PATIENCE_S)
        (before,) = members()

        # when bob wants the membership of alice, or to delete the group, which bob may describe
        with closing(member(broker, "bob", static)) as refused:
            message = refused.poll(PATIENCE_S)
            refusal = None if message is None else message.error()
        ended = delete_group(broker, "bob", group)

        # then the user is refused, and alice is still a member
        assert refusal is not None and refusal.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
        assert ended == KafkaError.GROUP_AUTHORIZATION_FAILED
        assert members() == [before]

        # the control: by one who may, the membership is taken, and given up
        with closing(member(broker, "alice", static)) as restarted:
            eventually(
                lambda: restarted.poll(0.1) or restarted.assignment(), "the static member was replaced", PATIENCE_S
            )
            (after,) = members()
            assert after != before
        admin.remove_members(group, instance_ids=["node-1"])
        assert delete_group(broker, "admin", group) is None


def delete_group(broker: SecuredBroker, user: str, group: str) -> int | None:
    """The code of the refusal, if it is one."""
    client = AdminClient(broker.settings(user))  # named: it must outlive its question
    (done,) = client.delete_consumer_groups([group]).values()
    refusal = done.exception(PATIENCE_S)
    return None if refusal is None else refusal.args[0].code()


def member(broker: SecuredBroker, user: str, settings: dict[str, Any]) -> ConfluentConsumer:
    consumer = ConfluentConsumer(broker.settings(user) | settings)
    consumer.subscribe([TOPIC])
    return consumer


# -- kafka-python and aiokafka ----------------------------------------------------------------------------------------


def kafka_python(broker: SecuredBroker, mechanism: str, password: str = PASSWORDS["alice"]) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.at("BOTH"),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(broker.authority.certificate),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
    }


@mechanisms
def test_kafka_python_produces_and_consumes_in_a_group(broker: SecuredBroker, mechanism: str) -> None:
    config = kafka_python(broker, mechanism)
    value = f"kafka-python {mechanism}".encode()
    producer = KafkaProducer(**config)
    try:
        producer.send(TOPIC, value).get(timeout=PATIENCE_S)
        with pytest.raises(TopicAuthorizationFailedError):
            producer.send(SECRET_TOPIC, value).get(timeout=PATIENCE_S)
    finally:
        producer.close(timeout=PATIENCE_S)
    consumer = KafkaConsumer(TOPIC, group_id=f"{GROUP}-python-{mechanism}", auto_offset_reset="earliest", **config)
    try:
        deadline = time.monotonic() + PATIENCE_S
        found: set[bytes] = set()
        while value not in found:
            assert time.monotonic() < deadline, found
            found |= {one.value for records in consumer.poll(timeout_ms=200).values() for one in records}
    finally:
        consumer.close()


def test_kafka_python_is_kept_out_of_a_group(broker: SecuredBroker) -> None:
    consumer = KafkaConsumer(TOPIC, group_id="payroll", **kafka_python(broker, "SCRAM-SHA-256"))
    try:
        with pytest.raises(GroupAuthorizationFailedError):
            eventually(lambda: consumer.poll(timeout_ms=200), "a refusal", PATIENCE_S)
    finally:
        consumer.close()


def test_aiokafka_produces_and_consumes_and_reports_a_wrong_password(broker: SecuredBroker) -> None:
    config = {
        "bootstrap_servers": broker.at("BOTH"),
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=str(broker.authority.certificate)),
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORDS["alice"],
    }

    async def scenario() -> bytes | None:
        producer = AIOKafkaProducer(**config)
        await producer.start()
        try:
            sent = await producer.send_and_wait(TOPIC, b"aiokafka")
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(TOPIC, group_id=f"{GROUP}-aio", auto_offset_reset="earliest", **config)
        await consumer.start()
        try:
            async for message in consumer:
                if message.offset == sent.offset:
                    break
        finally:
            await consumer.stop()
        refused = AIOKafkaProducer(**(config | {"sasl_plain_password": "wrong"}))
        with pytest.raises(AiokafkaConnectionError):
            await refused.start()
        await refused.stop()
        return message.value  # type: ignore[no-any-return]

    assert asyncio.run(asyncio.wait_for(scenario(), PATIENCE_S)) == b"aiokafka"


# -- Holdfast's own ----------------------------------------------------------------------------------------------------


@mechanisms
def test_our_own_consumer_and_admin_are_let_in(broker: SecuredBroker, mechanism: str) -> None:
    config = broker.settings("alice", mechanism)
    producer = Producer(config)
    producer.produce(TOPIC, b"ours")
    assert producer.flush(PATIENCE_S) == 0
    static = {"group.id": f"{GROUP}-ours-{mechanism}", "group.instance.id": "node-1", "auto.offset.reset": "earliest"}
    with Consumer(config | static) as consumer:
        consumer.subscribe([TOPIC])
        deadline = time.monotonic() + PATIENCE_S
        while not (found := consumer.consume(1, 0.2)):
            assert time.monotonic() < deadline
        assert found[0].error() is None
        with Admin(config) as admin:
            (member,) = admin.describe_group(str(static["group.id"])).members
            assert member.group_instance_id == "node-1"
            assert "alice" not in repr(member), "who is behind a member is nobody's business"


def test_our_own_client_reports_why_it_is_rejected(broker: SecuredBroker) -> None:
    with pytest.raises(AuthenticationFailed, match="invalid credentials") as refused:
        Admin(broker.settings("alice") | {"sasl.password": "wrong"}).list_topics()
    assert "wrong" not in str(refused.value)
    with Admin(broker.settings("alice")) as admin:
        with pytest.raises(HoldfastError) as lacking:
            admin.describe_group("payroll")
        assert lacking.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert [one.name for one in admin.list_topics()] == [TOPIC]


def test_the_command_line_is_let_in_by_the_same_settings(
    broker: SecuredBroker, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path_factory.mktemp("cli") / "alice.properties"
    file.write_text("\n".join(f"{name}={value}" for name, value in broker.settings("alice").items()))
    assert main(["topics", "list", "--command-config", str(file)]) == 0
    assert TOPIC in capsys.readouterr().out
    assert main(["groups", "describe", "--group", "payroll", "--command-config", str(file)]) == 1
    said = capsys.readouterr().err
    assert "GROUP_AUTHORIZATION_FAILED" in said and PASSWORDS["alice"] not in said
