"""Registered members (KIP-469) are ordinary clients with a `group.instance.id`: a group takes all of them in at
once."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.coordinator.events.causes import CauseCode
from tests.client_compat.servers import Server
from tests.groups.conftest import REAL, available
from tests.groups.extension_requests import expected_of, instances_of, kinds, register
from tests.groups.members import (
    AIOKAFKA,
    CONFLUENT,
    FRANZ_GO,
    JAVA,
    KAFKA_PYTHON,
    SARAMA,
    GroupClient,
    Member,
    StartMember,
    await_shared,
)
from tests.groups.topics import PARTITIONS, await_committed, ledger, make_topic, produce
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker

COOPERATIVE = "cooperative-sticky"
REAL_CLIENTS = [pytest.param(client, marks=REAL) for client in (JAVA, FRANZ_GO, SARAMA)]
EAGER = [CONFLUENT, KAFKA_PYTHON, AIOKAFKA, *REAL_CLIENTS]
LONG_DELAY_S = 90
"""Longer than it takes to start two clients."""
IMPATIENT_MS = 12_000
"""Twice what the broker lets it wait, which follows from its session."""
FORMED_AT_ONCE = ["members registered", "rebalance started", "generation formed", "assigned"]


@pytest.fixture
def client(request: pytest.FixtureRequest) -> GroupClient:
    return available(request)


every_client = pytest.mark.parametrize("client", EAGER, indirect=True, ids=lambda client: client.name)


@pytest.fixture(scope="module")
def slow_to_form() -> Iterator[HoldfastBroker]:
    """A broker whose groups wait long for any member that may still come."""
    settings = {"group.initial.rebalance.delay.ms": str(LONG_DELAY_S * 1000), "group.min.session.timeout.ms": "500"}
    with HoldfastBroker(settings) as broker:
        yield broker


def start_two(start_member: StartMember, client: GroupClient, server: Server, assignor: str) -> list[Member]:
    """The members that work already."""
    members = [start_member(client, server.bootstrap, instance_id=name, assignor=assignor) for name in ("a", "b")]
    await_shared(members, PARTITIONS)
    produce(server, members[0].config.topic, each=1)
    await_committed(server, members[0].config.group, members[0].config.topic, 1)
    return members


def rebalances(events: list[dict[str, Any]]) -> list[str]:
    return [event["cause_code"] for event in events if event["kind"] == "rebalance started"]


@pytest.mark.parametrize(
    ("client", "assignor"),
    [
        pytest.param(CONFLUENT, "range", id="confluent-kafka"),
        pytest.param(CONFLUENT, COOPERATIVE, id="confluent-kafka-cooperative"),
        pytest.param(KAFKA_PYTHON, "range", id="kafka-python"),
        pytest.param(AIOKAFKA, "range", id="aiokafka"),
        pytest.param(JAVA, "range", id="java", marks=REAL),
        pytest.param(FRANZ_GO, "range", id="franz-go", marks=REAL),
        pytest.param(FRANZ_GO, COOPERATIVE, id="franz-go-cooperative", marks=REAL),
        pytest.param(SARAMA, "range", id="sarama", marks=REAL),
    ],
    indirect=["client"],
)
def test_a_group_of_two_grows_to_four_in_one_rebalance(
    quick_holdfast: Server, client: GroupClient, assignor: str, start_member: StartMember, group: str, topic_name: str
) -> None:
    # given two active and two registered members
    server = quick_holdfast
    topic = make_topic(server, topic_name)
    live = start_two(start_member, client, server, assignor)
    assignments, before = [member.owned for member in live], [member.revocations for member in live]
    formed = len(ledger(server, group))
    register(server, group, "c", "d")

    # when the first of them comes, then it waits with an empty assignment, and the two work on undisturbed
    early = start_member(client, server.bootstrap, instance_id="c", assignor=assignor)
    eventually(lambda: expected_of(server, group) == {"d"}, "the first one is there")
    eventually(lambda: early.assignments, f"{early} gets its assignment")
    produce(server, topic, each=1, first=1)
    await_committed(server, group, topic, 2)
    assert early.owned == set()
    assert [member.owned for member in live] == assignments
    assert [member.revocations for member in live] == before
    assert kinds(ledger(server, group)[formed:]) == ["members registered", "standby added"]

    # when the last one comes, then one rebalance takes in both
    late = start_member(client, server.bootstrap, instance_id="d", assignor=assignor)
    await_shared([*live, early, late], PARTITIONS)
    produce(server, topic, each=1, first=2)
    await_committed(server, group, topic, 3)
    causes = rebalances(ledger(server, group)[formed:])
    assert causes[0] == CauseCode.REGISTRATION_COMPLETE
    if assignor == COOPERATIVE:
        # Who had to give a partition up joins once more, so that somebody else gets it: Kafka's own second round.
        assert set(causes[1:]) == {CauseCode.SUBSCRIPTION_CHANGED}
    else:
        assert len(causes) == 1
    assert [member.revocations - old for member, old in zip(live, before, strict=True)] == [1, 1]
    assert expected_of(server, group) == set()


@every_client
def test_without_a_registration_the_group_rebalances_for_each_member(
    quick_holdfast: Server, client: GroupClient, start_member: StartMember, group: str, topic_name: str
) -> None:
    """The control: the same two newcomers, one after the other."""
    server = quick_holdfast
    make_topic(server, topic_name)
    live = start_two(start_member, client, server, "range")
    before = [member.revocations for member in live]
    formed = len(ledger(server, group))

    early = start_member(client, server.bootstrap, instance_id="c")
    await_all_have_some([*live, early])
    late = start_member(client, server.bootstrap, instance_id="d")
    await_shared([*live, early, late], PARTITIONS)

    assert rebalances(ledger(server, group)[formed:]) == [CauseCode.MEMBER_JOINED] * 2
    assert [member.revocations - old for member, old in zip(live, before, strict=True)] == [2, 2]


def await_all_have_some(members: list[Member]) -> None:
    eventually(lambda: all(member.owned for member in members), f"an assignment for each of {members}")


@every_client
def test_a_new_group_forms_when_the_last_registered_member_has_joined(
    slow_to_form: Server, client: GroupClient, start_member: StartMember, group: str, topic_name: str
) -> None:
    # given only one registered member, which waits
    server = slow_to_form
    make_topic(server, topic_name)
    register(server, group, "a", "b")
    first = start_member(client, server.bootstrap, instance_id="a")
    eventually(lambda: expected_of(server, group) == {"b"}, "the first one waits")

    # when
    began = time.monotonic()
    second = start_member(client, server.bootstrap, instance_id="b")

    # then there is one generation, and no delay
    await_shared([first, second], PARTITIONS)
    assert time.monotonic() - began < LONG_DELAY_S
    assert kinds(ledger(server, group)) == FORMED_AT_ONCE
    assert [member.revocations for member in (first, second)] == [0, 0]


def test_without_a_registration_a_new_group_waits_for_the_initial_delay(
    slow_to_form: Server, start_member: StartMember, group: str, topic_name: str
) -> None:
    """The control: the same two are there, and have no assignment."""
    make_topic(slow_to_form, topic_name)

    members = [start_member(CONFLUENT, slow_to_form.bootstrap, instance_id=name) for name in ("a", "b")]
    eventually(lambda: set(instances_of(slow_to_form, group)) == {"a", "b"}, "both are in the group")

    assert kinds(ledger(slow_to_form, group)) == ["rebalance started"]
    assert [member.assignments for member in members] == [0, 0]


def test_the_wait_may_be_longer_than_a_clients_patience(
    slow_to_form: Server, start_member: StartMember, group: str, topic_name: str
) -> None:
    """aiokafka waits for no answer longer than its request timeout, and then hangs up."""
    # given
    server = slow_to_form
    make_topic(server, topic_name)
    register(server, group, "a", "b")
    impatient = {"session_timeout_ms": 8_000, "request_timeout_ms": IMPATIENT_MS}
    first = start_member(AIOKAFKA, server.bootstrap, instance_id="a", **impatient)
    eventually(lambda: expected_of(server, group) == {"b"}, "the first one waits")

    # when it has waited for longer than that
    time.sleep(1.5 * IMPATIENT_MS / 1000)
    second = start_member(AIOKAFKA, server.bootstrap, instance_id="b", **impatient)

    # then it has neither hung up, of which the ledger would tell, nor said a word
    await_shared([first, second], PARTITIONS)
    assert kinds(ledger(server, group)) == FORMED_AT_ONCE
    assert all(line.startswith("{") for line in first.output().splitlines()), first.output()
