"""DescribeClientQuotas: there are no quotas. Kafka's tool requests them along with the SCRAM credentials of users."""

from __future__ import annotations

from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.wire.apis.describe_client_quotas import (
    DESCRIBE_CLIENT_QUOTAS,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)


@handler(DESCRIBE_CLIENT_QUOTAS)
def describe_client_quotas(
    services: Services,  # noqa: ARG001
    request: DescribeClientQuotasRequest,  # noqa: ARG001
    context: RequestContext,  # noqa: ARG001
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_message=None)
