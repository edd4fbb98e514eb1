"""DescribeUserScramCredentials: which mechanisms the users of the users file have, with how many iterations."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.broker.handlers.alter_user_scram_credentials import MECHANISMS, NO_USERS_FILE
from holdfast.broker.security.users import Users
from holdfast.wire.apis.describe_user_scram_credentials import (
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker


@handles(DESCRIBE_USER_SCRAM_CREDENTIALS)
def describe_user_scram_credentials(
    broker: Broker,
    request: DescribeUserScramCredentialsRequest,
    context: RequestContext,  # noqa: ARG001
) -> DescribeUserScramCredentialsResponse:
    if broker.users is None:
        return DescribeUserScramCredentialsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_USERS_FILE)
    users = broker.users.users
    asked = Counter(user.name for user in request.users) if request.users else dict.fromkeys(users.credentials, 1)
    return DescribeUserScramCredentialsResponse(
        error_message=None, results=[_describe(users, name, times) for name, times in asked.items()]
    )


def _describe(users: Users, name: str, times: int) -> DescribeUserScramCredentialsResult:
    if times > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return DescribeUserScramCredentialsResult(name, ErrorCode.DUPLICATE_RESOURCE, message)
    of_user = users.credentials.get(name)
    if of_user is None:
        message = f"Attempt to describe a user credential that does not exist: {name}"
        return DescribeUserScramCredentialsResult(name, ErrorCode.RESOURCE_NOT_FOUND, message)
    infos = [
        CredentialInfo(number, of_user[mechanism].iterations)
        for number, mechanism in MECHANISMS.items()
        if mechanism in of_user
    ]
    return DescribeUserScramCredentialsResult(name, ErrorCode.NONE, None, infos)
