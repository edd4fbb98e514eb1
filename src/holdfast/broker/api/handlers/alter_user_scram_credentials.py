"""AlterUserScramCredentials (KIP-554): sets and deletes passwords in the users file.

The client sends the salted and iterated password. The keys that a SCRAM server stores are derived from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from hashlib import new as new_hash
from typing import Final

from holdfast.broker.api.handlers._edit_users import edit_users
from holdfast.broker.api.registry import handler
from holdfast.broker.api.replies import PartialError
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.authorization.scram import (
    DEFAULT_ITERATIONS,
    HASHES,
    MIN_ITERATIONS,
    Credential,
    credential_of,
)
from holdfast.broker.authorization.users_file import MAX_USERS, MIN_SALT_BYTES, Users, UsersFileError, validate_name
from holdfast.broker.config.security import SCRAM_MECHANISMS
from holdfast.broker.util.slices import Work
from holdfast.wire.apis.alter_user_scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from holdfast.wire.error_codes import ErrorCode

MECHANISMS: Final[Mapping[int, str]] = dict(enumerate(SCRAM_MECHANISMS, 1))
"""By Kafka's numbers."""
NO_USERS_FILE: Final = "No users.file is configured."
MAX_ITERATIONS: Final = DEFAULT_ITERATIONS
"""The most that Kafka accepts here."""
MAX_SALT_BYTES: Final = 256

Credentials = dict[str, dict[str, Credential]]


@handler(ALTER_USER_SCRAM_CREDENTIALS)
async def alter_user_scram_credentials(
    services: Services, request: AlterUserScramCredentialsRequest, context: RequestContext
) -> object:
    if services.authorizer is None:
        return await services.slices.run(fail_all(request, ErrorCode.SECURITY_DISABLED, NO_USERS_FILE))
    results: list[AlterUserScramCredentialsResult] = []

    def change(users: Users) -> Users:
        credentials: Credentials = {name: dict(of_user) for name, of_user in users.credentials.items()}
        results.extend(_alter(credentials, request))
        return replace(users, credentials=credentials)

    try:
        return await edit_users(services, context, change, AlterUserScramCredentialsResponse(results=results))
    except PartialError as refused:
        return await services.slices.run(fail_all(request, refused.code, refused.message))


def _alter(
    credentials: Credentials, request: AlterUserScramCredentialsRequest
) -> list[AlterUserScramCredentialsResult]:
    """One result for each user that the request names, as from Kafka."""
    changes: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    times = Counter(one.name for one in changes)
    results: dict[str, AlterUserScramCredentialsResult] = {}
    for one in changes:
        if one.name in results:
            continue
        try:
            _check(one)
            if isinstance(one, ScramCredentialDeletion):
                _check_exists(credentials, one)
            if times[one.name] > 1:
                message = "A user credential cannot be altered twice in the same request"
                raise PartialError(ErrorCode.DUPLICATE_RESOURCE, message)
            _apply(credentials, one)
        except PartialError as refused:
            results[one.name] = AlterUserScramCredentialsResult(one.name, refused.code, refused.message)
        else:
            results[one.name] = AlterUserScramCredentialsResult(one.name, ErrorCode.NONE, None)
    return list(results.values())


def _check(one: ScramCredentialDeletion | ScramCredentialUpsertion) -> None:
    if not one.name:
        raise PartialError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if one.mechanism not in MECHANISMS:
        raise PartialError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")


def _check_exists(credentials: Credentials, deletion: ScramCredentialDeletion) -> None:
    if MECHANISMS[deletion.mechanism] not in credentials.get(deletion.name, {}):
        raise PartialError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")


def _apply(credentials: Credentials, one: ScramCredentialDeletion | ScramCredentialUpsertion) -> None:
    mechanism = MECHANISMS[one.mechanism]
    if isinstance(one, ScramCredentialUpsertion):
        made = _credential(one, mechanism)
        if one.name not in credentials and len(credentials) >= MAX_USERS:
            raise _unacceptable(f"there are {MAX_USERS} users already, which is the limit")
        credentials.setdefault(one.name, {})[mechanism] = made
        return
    del credentials[one.name][mechanism]
    if not credentials[one.name]:
        # The ACLs of the user stay, as in Kafka; `holdfast users remove` removes them as well.
        del credentials[one.name]


def _credential(wanted: ScramCredentialUpsertion, mechanism: str) -> Credential:
    try:
        validate_name(wanted.name)
    except UsersFileError as error:
        raise _unacceptable(str(error)) from None
    if wanted.iterations < MIN_ITERATIONS:
        raise _unacceptable("Too few iterations")
    if wanted.iterations > MAX_ITERATIONS:
        raise _unacceptable("Too many iterations")
    if not MIN_SALT_BYTES <= len(wanted.salt) <= MAX_SALT_BYTES:
        raise _unacceptable(f"a salt has {MIN_SALT_BYTES} to {MAX_SALT_BYTES} bytes, not {len(wanted.salt)}")
    size = new_hash(HASHES[mechanism]).digest_size
    if len(wanted.salted_password) != size:
        raise _unacceptable(f"a salted password of {mechanism} has {size} bytes, not {len(wanted.salted_password)}")
    return credential_of(mechanism, bytes(wanted.salt), bytes(wanted.salted_password), wanted.iterations)


def _unacceptable(message: str) -> PartialError:
    return PartialError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)


def fail_all(
    request: AlterUserScramCredentialsRequest, code: ErrorCode, message: str | None
) -> Work[AlterUserScramCredentialsResponse]:
    """One result for each user; there may be a hundred thousand."""
    results: dict[str, AlterUserScramCredentialsResult] = {}
    for changes in (request.deletions, request.upsertions):
        for one in changes:
            results[one.name] = AlterUserScramCredentialsResult(one.name, code, message)
            yield
    return AlterUserScramCredentialsResponse(results=list(results.values()))
