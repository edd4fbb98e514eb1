"""ApiVersions: what this broker can do. Made from the table of handlers, so it cannot lie."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

from holdfast.broker.dispatch import HANDLERS, Encoded, RequestContext, handles
from holdfast.wire.apis.api_versions import API_VERSIONS, ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.message import encode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
FIRST_WITH_SOFTWARE: Final = 3
LONGEST_SOFTWARE_NAME: Final = 100
"""In characters: it is kept for as long as the connection lasts."""


@cache
def _encoded(version: int) -> Encoded:
    keys = [ApiVersion(handler.api.key, *handler.advertised) for _, handler in sorted(HANDLERS.items())]
    return Encoded(encode(ApiVersionsResponse(api_keys=keys), version))


@cache
def unsupported_version() -> Encoded:
    """The answer to an ApiVersions version that we do not know: v0, and nothing but what we do know of ApiVersions."""
    known = [ApiVersion(API_VERSIONS.key, *API_VERSIONS.versions)]
    response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=known)
    return Encoded(encode(response, 0))


@lru_cache(maxsize=256)
def _is_software(name: str, version: str) -> bool:
    return bool(_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version))


@handles(API_VERSIONS)
def api_versions(broker: Broker, request: ApiVersionsRequest, context: RequestContext) -> Encoded | ApiVersionsResponse:  # noqa: ARG001
    if context.api_version >= FIRST_WITH_SOFTWARE:
        if not _is_software(request.client_software_name, request.client_software_version):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.connection.client_software = request.client_software_name[:LONGEST_SOFTWARE_NAME]
    return _encoded(context.api_version)
