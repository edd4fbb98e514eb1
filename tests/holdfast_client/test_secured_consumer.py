"""Consumers, members and admins behind TLS and SASL, on a real Apache Kafka: both planes are let in, or neither is."""

from __future__ import annotations

import contextlib
import gc
import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Admin, Consumer, HoldfastError, Member
from holdfast.client.errors import AuthenticationFailed
from tests.groups.topics import make_topic, produce
from tests.holdfast_client.consumers import QUICK
from tests.holdfast_client.secured_apache_kafka import PASSWORD, REAUTHENTICATE_MS
from tests.holdfast_client.secured_kafka import SecuredKafka, credentials, secured_kafka
from tests.support.eventually import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PATIENCE_S = 60.0
SOON_S = 20.0
"""Longer than a broker takes to refuse, shorter than any timeout of the client."""
WRONG = "not-alices-secret"


@pytest.fixture(scope="module")
def world(apache_kafka_distribution: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("certificates")) as found:
        yield found


@pytest.fixture
def made(world: SecuredKafka, topic: str) -> str:
    """A topic. The admin client that made it lives in a cycle, and its threads as long as it: they are none of ours."""
    make_topic(world.kafka, topic)
    gc.collect()
    return topic


@pytest.fixture(autouse=True)
def _no_thread_is_left_behind(made: str) -> Iterator[None]:
    """Neither one of Python's nor one of librdkafka's, which Python does not know."""
    python, native = set(threading.enumerate()), native_threads()
    yield
    eventually(lambda: set(threading.enumerate()) <= python, "the end of every thread that the test started", 20)
    with contextlib.suppress(AssertionError):  # the next line says which are left
        eventually(lambda: native_threads().keys() <= native.keys(), "the end of librdkafka's threads", 20)
    assert {one: name for one, name in native_threads().items() if one not in native} == {}


def native_threads() -> dict[str, str]:
    """By their ids, their names."""
    found = {}
    for path in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended since
            found[path.name] = (path / "comm").read_text().strip()
    return found


def scram(world: SecuredKafka) -> dict[str, Any]:
    guard = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(world.authority)}
    return world.config("BOTH", **guard, **credentials("SCRAM-SHA-512"))


def mutual(world: SecuredKafka) -> dict[str, Any]:
    guard = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(world.authority),
        "ssl.certificate.location": str(world.client.certificate),
        "ssl.key.location": str(world.client.key),
    }
    return world.config("MUTUAL", **guard)


def wrong_password(world: SecuredKafka) -> dict[str, Any]:
    return scram(world) | {"sasl.password": WRONG}


def no_certificate(world: SecuredKafka) -> dict[str, Any]:
    certificate = ("ssl.certificate.location", "ssl.key.location")
    return {name: value for name, value in mutual(world).items() if name not in certificate}


let_in = pytest.mark.parametrize("guard", [scram, mutual])
kept_out = pytest.mark.parametrize("guard", [wrong_password, no_certificate])
Security = Callable[[SecuredKafka], dict[str, Any]]


def read(consumer: Consumer, count: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
        for message in consumer.consume(count, 0.2):
            assert message.error() is None, message.error()
            found.append((message.partition(), message.offset()))
    return sorted(found)


def numbered(members: Any) -> dict[str, Any]:
    return {one.member_id: number for number, one in enumerate(members)}


# -- let in ------------------------------------------------------------------------------------------------------------


@let_in
def test_a_consumer_reads_and_commits_and_an_admin_sees_it(
    world: SecuredKafka, made: str, group: str, guard: Security
) -> None:
    records = produce(world.kafka, made, 5)
    static = {"group.id": group, "group.instance.id": "instance-1", "client.id": "guarded"}
    with Admin(guard(world)) as admin:
        with Consumer(guard(world) | QUICK | static) as consumer:
            consumer.subscribe([made])
            assert read(consumer, len(records)) == sorted(records)
            (member,) = admin.describe_group(group).members
            assert (member.group_instance_id, member.member_id) == ("instance-1", consumer.memberid())
            assert member.partitions == {made: [0, 1, 2, 3]}

        # Closing committed what was read; the admin may set it back, once the member is removed.
        assert {one.lag for one in admin.lag(group)} == {0}
        assert [one.error for one in admin.remove_members(group, instance_ids=["instance-1"])] == [None]
        admin.reset_offsets(group, to="earliest")
        assert {one.lag for one in admin.lag(group)} == {5}


@let_in
def test_a_member_of_another_kind_gets_its_assignment(world: SecuredKafka, group: str, guard: Security) -> None:
    with Member(guard(world) | {"group.id": group}, "shards", {"even": {}}, numbered) as member:
        assert member.wait_for_assignment(PATIENCE_S).state == 0


def test_a_consumer_outlives_its_sasl_sessions(world: SecuredKafka, made: str, group: str) -> None:
    expiring = world.config("EXPIRING", **{"security.protocol": "SASL_PLAINTEXT"}, **credentials("PLAIN"))
    with Consumer(expiring | QUICK | {"group.id": group}) as consumer:
        consumer.subscribe([made])
        before = produce(world.kafka, made, 1)
        assert read(consumer, len(before)) == sorted(before)
        identity = consumer.memberid(), consumer.generation()
        over = time.monotonic() + 3 * REAUTHENTICATE_MS / 1000
        while time.monotonic() < over:
            assert consumer.poll(0.1) is None

        after = produce(world.kafka, made, 1, first=1)
        assert read(consumer, 4) == sorted(after - before)
        assert (consumer.memberid(), consumer.generation()) == identity


# -- kept out ----------------------------------------------------------------------------------------------------------


def refused(attempt: Callable[[], object]) -> AuthenticationFailed:
    """What it raised, which must come soon and contain no secret, however it is printed."""
    began = time.monotonic()
    with pytest.raises(AuthenticationFailed) as raised:
        attempt()
    assert time.monotonic() - began < SOON_S
    printed = "".join(traceback.format_exception(raised.value)) + repr(raised.value)
    assert WRONG not in printed
    return raised.value


@kept_out
def test_a_consumer_that_is_kept_out_says_so_at_the_first_poll(
    world: SecuredKafka, made: str, group: str, guard: Security
) -> None:
    with Consumer(guard(world) | QUICK | {"group.id": group}) as consumer:
        consumer.subscribe([made])
        failure = refused(lambda: consumer.poll(PATIENCE_S))
        assert failure.fatal
        assert not failure.retriable
        # It is finished: there is nothing to wait for any more, and nothing new to say.
        began = time.monotonic()
        assert str(refused(lambda: consumer.poll(PATIENCE_S))) == str(failure)
        assert str(refused(lambda: consumer.commit(asynchronous=False))) == str(failure)
        assert time.monotonic() - began < SOON_S
        assert consumer.assignment() == []


@kept_out
def test_an_admin_that_is_kept_out_says_so(world: SecuredKafka, group: str, guard: Security) -> None:
    with Admin(guard(world)) as admin:
        refused(lambda: admin.describe_group(group))
        refused(admin.list_groups)


@kept_out
def test_a_member_that_is_kept_out_says_so(world: SecuredKafka, group: str, guard: Security) -> None:
    with Member(guard(world) | {"group.id": group}, "shards", {"even": {}}, numbered) as member:
        failure = refused(lambda: member.wait_for_assignment(PATIENCE_S))
        assert failure.fatal
        with pytest.raises(AuthenticationFailed):
            _ = member.current


# -- secrets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("guard", "secret"), [(scram, PASSWORD), (wrong_password, WRONG)])
def test_the_password_is_never_logged(
    world: SecuredKafka,
    made: str,
    group: str,
    guard: Security,
    secret: str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    config = guard(world) | {"group.id": group}
    shown: list[str] = []
    with Consumer(config | QUICK | {"debug": "security,broker"}) as consumer, Admin(config_of_admin(config)) as admin:
        consumer.subscribe([made])
        try:
            consumer.poll(5)
            admin.describe_group(group)
        except HoldfastError as error:
            shown.append("".join(traceback.format_exception(error)))
        shown += [repr(one) for one in (consumer, admin, *inside(consumer), *inside(admin))]
    out, err = capfd.readouterr()
    shown += [caplog.text, out, err]

    assert [one for one in shown if secret in one] == []
    assert "SASL" in err, "librdkafka's own log was read, too"


def config_of_admin(config: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name != "group.id"}


def inside(whole: object) -> list[object]:
    """What a debugger, or a report of a crash, would print."""
    parts = list(vars(whole).values())
    return parts + [deeper for part in parts for deeper in getattr(part, "__dict__", {}).values()]
