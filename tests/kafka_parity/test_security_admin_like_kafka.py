"""ACLs and SCRAM credentials by Kafka's APIs: Holdfast answers each request as Apache Kafka does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.wire.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from holdfast.wire.apis.create_acls import AclCreation, CreateAclsRequest
from holdfast.wire.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from holdfast.wire.apis.describe_acls import DescribeAclsRequest
from holdfast.wire.apis.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from tests.broker.secured_broker import PASSWORDS, SecuredBroker
from tests.broker.wire_client import WireClient
from tests.kafka_parity.test_rights_like_kafka import AuthorizingKafka, logged_in
from tests.support.eventually import eventually
from tests.support.quick_brokers import QUICK

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

Admins = dict[str, WireClient]


@pytest.fixture(scope="module")
def admins(apache_kafka_distribution: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admins]:
    with SecuredBroker(tmp_path_factory.mktemp("admins")) as holdfast, AuthorizingKafka(QUICK) as kafka:
        clients = {
            "holdfast": logged_in(holdfast.port("SASL"), "admin"),
            "kafka": logged_in(kafka.secured, "admin"),
        }
        yield clients
        for client in clients.values():
            client.socket.close()


def acl(
    name: str = "t",
    *,
    kind: int = 2,
    pattern: int = 3,
    principal: str = "User:a",
    operation: int = 3,
    permission: int = 3,
) -> AclCreation:
    return AclCreation(kind, name, pattern, principal, "*", operation, permission)


@pytest.mark.parametrize(
    "creations",
    [
        pytest.param([acl(), acl()], id="twice the same"),
        pytest.param([acl("prefix-", pattern=4), acl("*", permission=2), acl("g", kind=3)], id="patterns and kinds"),
        pytest.param([acl("kafka-cluster", kind=4, operation=7)], id="cluster"),
        pytest.param([acl("another", kind=4, operation=7)], id="a cluster of another name"),
        pytest.param([acl(""), acl("beside-a-wrong-one")], id="without a name"),
        pytest.param([acl(principal="a")], id="no principal"),
        pytest.param([acl(kind=99), acl(pattern=9), acl(operation=99), acl(permission=9)], id="unknown numbers"),
        pytest.param([], id="none"),
    ],
)
def test_create_acls_answers_like_kafka(admins: Admins, creations: list[AclCreation]) -> None:
    answers = {
        server: [one.error_code for one in client.ask(CreateAclsRequest(creations), 3).results]
        for server, client in admins.items()
    }
    assert answers["holdfast"] == answers["kafka"]
    await_same_acls(admins)


def described(client: WireClient, request: DescribeAclsRequest) -> set[tuple[Any, ...]]:
    return {
        (
            one.resource_type, one.resource_name, one.pattern_type,
            each.principal, each.host, each.operation, each.permission_type,
        )
        for one in client.ask(request, 3).resources
        for each in one.acls
    }  # fmt: skip


EVERYTHING = DescribeAclsRequest(1, None, 1, None, None, 1, 1)


def await_same_acls(admins: Admins) -> None:
    """Kafka's broker hears from its controller, a moment after the answer."""
    ours = described(admins["holdfast"], EVERYTHING)
    eventually(lambda: described(admins["kafka"], EVERYTHING) == ours, "both have the same ACLs")


@pytest.mark.parametrize(
    "filters",
    [
        pytest.param([DeleteAclsFilter(2, "d1", 3, None, None, 1, 1)], id="by name"),
        pytest.param([DeleteAclsFilter(2, "d1", 2, None, None, 1, 1)], id="whatever covers a name"),
        pytest.param([DeleteAclsFilter(1, None, 1, "User:d", "*", 1, 3)], id="by principal"),
        pytest.param(
            [DeleteAclsFilter(2, "d1", 3, None, None, 1, 1), DeleteAclsFilter(2, None, 1, "User:d", None, 1, 1)],
            id="two that select the same",
        ),
        pytest.param([DeleteAclsFilter(2, "nothing", 3, None, None, 1, 1)], id="nothing"),
        pytest.param([DeleteAclsFilter(99, None, 1, None, None, 1, 1)], id="an unknown kind"),
        pytest.param([DeleteAclsFilter(1, None, 9, None, None, 1, 1)], id="an unknown pattern"),
        pytest.param([DeleteAclsFilter(1, None, 1, None, None, 99, 1)], id="an unknown operation"),
    ],
)
def test_delete_acls_answers_like_kafka(admins: Admins, filters: list[DeleteAclsFilter]) -> None:
    given = [acl(name, pattern=pattern, principal="User:d") for name in ("d1", "d2", "d") for pattern in (3, 4)]
    for client in admins.values():
        client.ask(CreateAclsRequest(given), 3)
    await_same_acls(admins)

    def answer(client: WireClient) -> list[tuple[Any, ...]]:
        return [
            (one.error_code, {(each.resource_name, each.pattern_type, each.principal) for each in one.matching_acls})
            for one in client.ask(DeleteAclsRequest(filters), 3).filter_results
        ]

    answers = {server: answer(client) for server, client in admins.items()}
    assert answers["holdfast"] == answers["kafka"]
    await_same_acls(admins)


def upsertion(name: str, *, mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(name, mechanism, iterations, b"s" * 24, b"p" * 32 * mechanism)


Deletion = ScramCredentialDeletion


@pytest.mark.parametrize(
    ("deletions", "upsertions"),
    [
        pytest.param([], [upsertion("s1"), upsertion("s2", mechanism=2)], id="new users"),
        pytest.param([], [upsertion("s1", mechanism=2, iterations=16384)], id="a second mechanism"),
        pytest.param([], [upsertion("few", iterations=4095), upsertion("many", iterations=16385)], id="iterations"),
        pytest.param([], [upsertion("right"), upsertion("wrong", iterations=1)], id="one of two is wrong"),
        pytest.param([], [upsertion("")], id="without a name"),
        pytest.param([], [upsertion("s1", mechanism=0)], id="an unknown mechanism"),
        pytest.param([], [upsertion("twice"), upsertion("twice", mechanism=2)], id="a user twice"),
        pytest.param([Deletion("new", 1)], [upsertion("new")], id="deleted and set"),
        pytest.param([Deletion("nobody", 1), Deletion("", 1), Deletion("s2", 9)], [], id="deletes that fail"),
        pytest.param([Deletion("s2", 2)], [], id="a user is deleted"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_alter_user_scram_credentials_answers_like_kafka(
    admins: Admins, deletions: list[ScramCredentialDeletion], upsertions: list[ScramCredentialUpsertion]
) -> None:
    """The cases build on each other: s1 and s2 are users from the first one on."""

    def answer(client: WireClient) -> set[tuple[Any, ...]]:
        results = client.ask(AlterUserScramCredentialsRequest(deletions, upsertions), 0).results
        return {(one.user, one.error_code, one.error_message) for one in results}

    assert answer(admins["holdfast"]) == answer(admins["kafka"])
    ours = users(admins["holdfast"], None) - users_of_the_test()
    eventually(lambda: users(admins["kafka"], None) == ours, "both have the same users")


def users_of_the_test() -> set[tuple[Any, ...]]:
    return {(name, 0, (), ((1, 4096), (2, 4096))) for name in PASSWORDS}


def users(client: WireClient, names: list[str] | None) -> set[tuple[Any, ...]]:
    asked = None if names is None else [UserName(name) for name in names]
    answer = client.ask(DescribeUserScramCredentialsRequest(asked), 0)
    assert answer.error_code == 0
    return {
        (
            one.user, one.error_code, tuple(filter(None, [one.error_message])),
            tuple(sorted((each.mechanism, each.iterations) for each in one.credential_infos)),
        )
        for one in answer.results
    }  # fmt: skip


@pytest.mark.parametrize("names", [["s1", "nobody"], ["s1", "s1"], [""]], ids=str)
def test_describe_user_scram_credentials_answers_like_kafka(admins: Admins, names: list[str]) -> None:
    for client in admins.values():
        client.ask(AlterUserScramCredentialsRequest([], [upsertion("s1")]), 0)
    ours = users(admins["holdfast"], names)
    eventually(lambda: users(admins["kafka"], names) == ours, "both describe the same")
