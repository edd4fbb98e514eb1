"""DescribeClientQuotas (KIP-546): the quotas of users, client ids and addresses. v1 is the first flexible version."""

from holdfast.wire.fields import array, boolean, float64, int8, int16, int32, string
from holdfast.wire.message import Api, request, response, struct_type

DESCRIBE_CLIENT_QUOTAS = Api(48, "DescribeClientQuotas", versions=(0, 1), flexible=1)


@struct_type
class QuotaComponent:
    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable=0)


@request(DESCRIBE_CLIENT_QUOTAS)
class DescribeClientQuotasRequest:
    components: list[QuotaComponent] = array(QuotaComponent)
    strict: bool = boolean()


@struct_type
class QuotaEntity:
    entity_type: str = string()
    entity_name: str | None = string(nullable=0)


@struct_type
class QuotaValue:
    key: str = string()
    value: float = float64()


@struct_type
class QuotaEntry:
    entity: list[QuotaEntity] = array(QuotaEntity)
    values: list[QuotaValue] = array(QuotaValue)


@response(DESCRIBE_CLIENT_QUOTAS)
class DescribeClientQuotasResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    entries: list[QuotaEntry] | None = array(QuotaEntry, nullable=0)
