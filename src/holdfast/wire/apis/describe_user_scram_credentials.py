"""DescribeUserScramCredentials (KIP-554): which SCRAM mechanisms users have, and with how many iterations."""

from holdfast.wire.fields import array, int8, int16, int32, string
from holdfast.wire.message import Api, request, response, struct_type

DESCRIBE_USER_SCRAM_CREDENTIALS = Api(50, "DescribeUserScramCredentials", versions=(0, 0), flexible=0)


@struct_type
class UserName:
    name: str = string()


@request(DESCRIBE_USER_SCRAM_CREDENTIALS)
class DescribeUserScramCredentialsRequest:
    users: list[UserName] | None = array(UserName, nullable=0)


@struct_type
class CredentialInfo:
    mechanism: int = int8()
    iterations: int = int32()


@struct_type
class DescribeUserScramCredentialsResult:
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


@response(DESCRIBE_USER_SCRAM_CREDENTIALS)
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
