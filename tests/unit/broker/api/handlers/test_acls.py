"""ACLs and users by Kafka's own APIs, without a users file: the answer of a Kafka without an authorizer."""

from holdfast.wire.apis.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialDeletion
from holdfast.wire.apis.create_acls import AclCreation, CreateAclsRequest
from holdfast.wire.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from holdfast.wire.apis.describe_acls import DescribeAclsRequest
from holdfast.wire.apis.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from tests.support.handler_broker import HandlerBroker

SECURITY_DISABLED = 54


def test_without_a_users_file_security_is_disabled(broker: HandlerBroker) -> None:
    described = broker.ask(DescribeAclsRequest(1, None, 1, None, None, 1, 1), 3)
    created = broker.ask(CreateAclsRequest([AclCreation(2, "t", 3, "User:a", "*", 3, 3)]), 3)
    deleted = broker.ask(DeleteAclsRequest([DeleteAclsFilter(1, None, 1, None, None, 1, 1)]), 3)

    users = broker.ask(DescribeUserScramCredentialsRequest(None), 0)
    altered = broker.ask(AlterUserScramCredentialsRequest([ScramCredentialDeletion("a", 1)]), 0)

    answers = [described, *created.results, *deleted.filter_results]
    assert [(one.error_code, one.error_message) for one in answers] == [
        (SECURITY_DISABLED, "No Authorizer is configured.")
    ] * 3
    assert [(one.error_code, one.error_message) for one in (users, *altered.results)] == [
        (SECURITY_DISABLED, "No users.file is configured.")
    ] * 2
