"""DescribeUserScramCredentials: the mechanisms of the users in the users file, with their iterations."""

from __future__ import annotations

from collections import Counter

from holdfast.broker.api.handlers.alter_user_scram_credentials import MECHANISMS, NO_USERS_FILE
from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.authorization.users_file import Users
from holdfast.wire.apis.describe_user_scram_credentials import (
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from holdfast.wire.error_codes import ErrorCode


@handler(DESCRIBE_USER_SCRAM_CREDENTIALS)
def describe_user_scram_credentials(
    services: Services,
    request: DescribeUserScramCredentialsRequest,
    context: RequestContext,  # noqa: ARG001
) -> DescribeUserScramCredentialsResponse:
    if services.authorizer is None:
        return DescribeUserScramCredentialsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_USERS_FILE)
    users = services.authorizer.users
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
