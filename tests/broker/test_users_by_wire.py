"""ACLs and passwords that an administrator changes with Kafka's own APIs: in the users file, and in force at once."""

from __future__ import annotations

import hashlib
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.broker.authorization.acls import Operation
from holdfast.broker.authorization.users_file import Users, read_users, write_users
from holdfast.wire.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from holdfast.wire.apis.create_acls import AclCreation, CreateAclsRequest
from holdfast.wire.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from holdfast.wire.apis.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from holdfast.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.crash_at_write import KillableBroker
from tests.broker.secured_broker import PASSWORDS, SecuredBroker, authenticate, user_acl
from tests.broker.wire_client import WireClient

TOPIC, LITERAL, ALLOW, ANY = 2, 3, 3, 1
TOPIC_REFUSED, SASL_FAILED, INVALID_REQUEST, SERVER_ERROR = 29, 58, 42, -1
SHA_256, SHA_512 = 1, 2
HASH_NAMES = {SHA_256: "sha256", SHA_512: "sha512"}
SCRAM = {SHA_256: "SCRAM-SHA-256", SHA_512: "SCRAM-SHA-512"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path) as broker:
        with broker.connect_as("admin") as admin:
            admin.create_topic("orders")
        yield broker


def read_orders(user: str) -> AclCreation:
    return AclCreation(TOPIC, "orders", LITERAL, f"User:{user}", "*", Operation.READ, ALLOW)


def upsertion(name: str, password: str, mechanism: int = SHA_256) -> ScramCredentialUpsertion:
    salt = b"a salt of twenty-four by"
    salted = hashlib.pbkdf2_hmac(HASH_NAMES[mechanism], password.encode(), salt, 4096)
    return ScramCredentialUpsertion(name, mechanism, 4096, salt, salted)


def sees_orders(client: WireClient) -> bool:
    (topic,) = client.ask(MetadataRequest([MetadataRequestTopic(name="orders")]), 9).topics
    assert topic.error_code in (0, TOPIC_REFUSED)
    return bool(topic.error_code == 0)


def test_an_acl_is_in_force_and_in_the_file_when_it_is_answered(broker: SecuredBroker) -> None:
    with broker.connect_as("admin") as admin, broker.connect_as("alice") as alice:
        assert not sees_orders(alice)

        (created,) = admin.ask(CreateAclsRequest([read_orders("alice")]), 3).results

        assert created.error_code == 0
        assert sees_orders(alice)
        assert user_acl("alice", Operation.READ, topic="orders") in read_users(broker.users_file).acls
        assert stat.S_IMODE(broker.users_file.stat().st_mode) == 0o600

        everything_of_alice = DeleteAclsFilter(ANY, None, ANY, "User:alice", None, ANY, ANY)
        (deleted,) = admin.ask(DeleteAclsRequest([everything_of_alice]), 3).filter_results

        assert [(one.resource_name, one.principal) for one in deleted.matching_acls] == [("orders", "User:alice")]
        assert not sees_orders(alice)
        assert not read_users(broker.users_file).acls


def test_of_several_acls_those_that_are_wrong_are_refused_and_the_others_created(broker: SecuredBroker) -> None:
    wrong = [
        AclCreation(TOPIC, "orders", LITERAL, "User:alice", "host.example", Operation.READ, ALLOW),
        AclCreation(TOPIC, "orders", LITERAL, "Group:staff", "*", Operation.READ, ALLOW),
        AclCreation(TOPIC, "orders", LITERAL, "User:alice", "*", Operation.IDEMPOTENT_WRITE, ALLOW),
    ]
    with broker.connect_as("admin") as admin:
        results = admin.ask(CreateAclsRequest([*wrong, read_orders("alice")]), 3).results
    assert [one.error_code for one in results] == [INVALID_REQUEST] * len(wrong) + [0]
    assert all(one.error_message for one in results[:-1])
    assert len(read_users(broker.users_file).acls) == 1, "and the file can be read"


@pytest.mark.parametrize("mechanism", SCRAM)
def test_a_user_that_is_added_over_the_wire_can_log_in_until_it_is_deleted(
    broker: SecuredBroker, mechanism: int
) -> None:
    with broker.connect_as("admin") as admin:
        (added,) = admin.ask(AlterUserScramCredentialsRequest([], [upsertion("carol", "hers", mechanism)]), 0).results
        assert (added.user, added.error_code) == ("carol", 0)
        for one in (SCRAM[mechanism], "PLAIN"):
            with broker.connect() as carol:
                assert authenticate(carol, "carol", "hers", one).error_code == 0
        (described,) = admin.ask(DescribeUserScramCredentialsRequest([UserName("carol")]), 0).results
        assert [(one.mechanism, one.iterations) for one in described.credential_infos] == [(mechanism, 4096)]

        with broker.connect() as carol:
            assert authenticate(carol, "carol", "hers", SCRAM[mechanism]).error_code == 0
            deletion = ScramCredentialDeletion("carol", mechanism)
            (deleted,) = admin.ask(AlterUserScramCredentialsRequest([deletion]), 0).results
            assert deleted.error_code == 0
            assert carol.is_closed_by_broker(), "the password that it came in by does not exist any more"
        with broker.connect() as carol:
            assert authenticate(carol, "carol", "hers", SCRAM[mechanism]).error_code == SASL_FAILED
    assert "carol" not in read_users(broker.users_file).credentials


def test_a_user_that_changes_its_password_gets_the_answer_before_the_disconnect(broker: SecuredBroker) -> None:
    with broker.connect_as("admin") as admin, broker.connect_as("alice") as alice:
        (changed,) = admin.ask(AlterUserScramCredentialsRequest([], [upsertion("admin", "new")]), 0).results
        assert changed.error_code == 0
        assert admin.is_closed_by_broker()
        assert not sees_orders(alice), "others stay connected"
    with broker.connect() as admin:
        assert authenticate(admin, "admin", "new", "SCRAM-SHA-256").error_code == 0


def test_a_file_that_cannot_be_changed_is_an_error_that_says_so(broker: SecuredBroker) -> None:
    broker.users_file.chmod(0o660)
    with broker.connect_as("admin") as admin:
        (refused,) = admin.ask(CreateAclsRequest([read_orders("alice")]), 3).results
    assert refused.error_code == SERVER_ERROR and "can be written by its group" in refused.error_message
    broker.users_file.chmod(0o600)
    with broker.connect_as("admin") as admin:
        (created,) = admin.ask(CreateAclsRequest([read_orders("alice")]), 3).results
    assert created.error_code == 0


def test_after_a_kill_at_any_write_the_file_has_all_of_a_request_or_nothing(tmp_path: Path) -> None:
    users_file = tmp_path / "users.json"
    prepared = Users(super_users=frozenset({"User:ANONYMOUS"})).with_user("alice", PASSWORDS["alice"], 4096)
    settings = {"users.file": str(users_file)}
    request = CreateAclsRequest([read_orders("alice"), read_orders("bob")])
    for point in range(1, 50):
        write_users(users_file, prepared)
        with KillableBroker(tmp_path / "data", settings) as broker:
            broker.arm(point)
            try:
                with WireClient(broker.address) as client:
                    acknowledged = not any(one.error_code for one in client.ask(request, 3).results)
            except ConnectionError:
                acknowledged = False
        found = len(read_users(users_file).acls)
        assert found == 2 if acknowledged else found in (0, 2)
        shutil.rmtree(tmp_path / "data")
        with KillableBroker(tmp_path / "data", settings) as broker, WireClient(broker.address) as client:
            assert not any(one.error_code for one in client.ask(request, 3).results), "it starts, and goes on"
        if acknowledged:
            assert point > 5, "it hardly wrote anything: this test shows nothing"
            return
    pytest.fail("never acknowledged")
