"""ApiVersions: the APIs and versions that are served, from the table of handlers."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Final

from holdfast.broker.api.registry import HANDLERS, Handler, handler
from holdfast.broker.api.replies import PreEncoded
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.wire.apis.api_versions import API_VERSIONS, ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.message import encode

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
FIRST_WITH_SOFTWARE: Final = 3
MAX_SOFTWARE_NAME_LENGTH: Final = 100
"""In characters. The name is kept as long as the connection is open."""


@cache
def _encoded(version: int) -> PreEncoded:
    keys = [ApiVersion(handler.api.key, *handler.advertised) for _, handler in sorted(HANDLERS.items())]
    return PreEncoded(encode(ApiVersionsResponse(api_keys=keys), version))


def unsupported_version(*_: object) -> ApiVersionsResponse:
    """The answer to an unknown version of ApiVersions: in v0, with the versions of ApiVersions only (KIP-511)."""
    known = [ApiVersion(API_VERSIONS.key, *API_VERSIONS.versions)]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=known)


UNSUPPORTED_VERSION: Final = Handler(API_VERSIONS, unsupported_version, (0, 0), (0, 0))
"""Serves an unknown version as if it were version 0, which has no fields."""


@lru_cache(maxsize=256)
def _is_software(name: str, version: str) -> bool:
    return bool(_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version))


@handler(API_VERSIONS)
def api_versions(
    _services: Services, request: ApiVersionsRequest, context: RequestContext
) -> PreEncoded | ApiVersionsResponse:
    if context.api_version >= FIRST_WITH_SOFTWARE:
        if not _is_software(request.client_software_name, request.client_software_version):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.session.client_software = request.client_software_name[:MAX_SOFTWARE_NAME_LENGTH]
    return _encoded(context.api_version)
