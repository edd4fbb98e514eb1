"""CancelRegistration (Holdfast's own): registered static members are no longer expected."""

from holdfast.wire.fields import array, int16, int32, string
from holdfast.wire.message import Api, request, response, struct_type

CANCEL_REGISTRATION = Api(10_001, "CancelRegistration", versions=(0, 0), flexible=0)


@request(CANCEL_REGISTRATION)
class CancelRegistrationRequest:
    group_id: str = string()
    group_instance_ids: list[str] | None = array(string(), nullable=0, default=None)
    """Null means all of the group."""


@struct_type
class CancelRegistrationResult:
    group_instance_id: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)


@response(CANCEL_REGISTRATION)
class CancelRegistrationResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    results: list[CancelRegistrationResult] = array(CancelRegistrationResult)
