"""AlterUserScramCredentials (KIP-554): sets and deletes SCRAM credentials. The password itself is never sent."""

from holdfast.wire.fields import array, blob, int8, int16, int32, string
from holdfast.wire.message import Api, request, response, struct_type

ALTER_USER_SCRAM_CREDENTIALS = Api(51, "AlterUserScramCredentials", versions=(0, 0), flexible=0)


@struct_type
class ScramCredentialDeletion:
    name: str = string()
    mechanism: int = int8()


@struct_type
class ScramCredentialUpsertion:
    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = blob()
    salted_password: bytes = blob()


@request(ALTER_USER_SCRAM_CREDENTIALS)
class AlterUserScramCredentialsRequest:
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


@struct_type
class AlterUserScramCredentialsResult:
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


@response(ALTER_USER_SCRAM_CREDENTIALS)
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
