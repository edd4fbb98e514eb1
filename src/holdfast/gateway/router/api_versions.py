"""ApiVersions: Kafka's versions, those of the APIs that the gateway answers, and limits where it reads messages."""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Any, Final

from holdfast.broker.api.handlers.api_versions import (
    FIRST_WITH_SOFTWARE,
    MAX_SOFTWARE_NAME_LENGTH,
    unsupported_version,
)
from holdfast.gateway.router.ports import GroupRequests
from holdfast.gateway.router.rewriting import LAST_FETCH_WITHOUT_ADDRESSES
from holdfast.wire.apis.api_versions import API_VERSIONS, ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from holdfast.wire.apis.describe_cluster import DESCRIBE_CLUSTER
from holdfast.wire.apis.fetch import FETCH
from holdfast.wire.apis.find_coordinator import FIND_COORDINATOR
from holdfast.wire.apis.metadata import METADATA
from holdfast.wire.apis.produce import PRODUCE
from holdfast.wire.apis.sasl_authenticate import SASL_AUTHENTICATE
from holdfast.wire.apis.sasl_handshake import SASL_HANDSHAKE
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.errors import WireError
from holdfast.wire.headers import decode_request_header, decode_response, encode_response_parts
from holdfast.wire.message import decode

READ: Final = (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE, PRODUCE)
"""The router reads these in either mode, of Produce the beginning."""
REWRITTEN: Final = (METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER)

_CORRELATION_ID: Final = 4
_int32 = Struct(">i")
_error_code = Struct(">4xh").unpack_from


def highest_versions(*, is_transparent: bool) -> Mapping[int, int]:
    """By API key: the highest version that clients may use. Later versions may have a layout that we do not know."""
    highest = {api.key: api.versions[1] for api in READ}
    if not is_transparent:
        highest |= {api.key: api.versions[1] for api in REWRITTEN}
        highest[FETCH.key] = LAST_FETCH_WITHOUT_ADDRESSES
    return highest


def rejected_version(frame: bytes) -> bytes:
    """The response to an ApiVersions request of a version that we cannot read (KIP-511).

    It is not forwarded: a later Kafka might answer it, in a version in which we could not tell the client about groups.
    """
    (correlation_id,) = _int32.unpack_from(frame, _CORRELATION_ID)
    parts: list[Any] = encode_response_parts(unsupported_version(), 0, correlation_id)
    return b"".join(parts)


def merged(frame: bytes, version: int, requests: GroupRequests, highest: Mapping[int, int]) -> bytes:
    """The client's response with its length, for Kafka's response without its length. Raises WireError."""
    if len(frame) < 6 or _error_code(frame)[0] != ErrorCode.NONE:
        # UNSUPPORTED_VERSION comes in version 0 and lists nothing but ApiVersions itself.
        return _int32.pack(len(frame)) + frame
    correlation_id, kafka = decode_response(API_VERSIONS, version, frame)
    response: ApiVersionsResponse = requests.api_versions(kafka)
    response.api_keys = [kept for one in response.api_keys if (kept := _limited(one, highest)) is not None]
    parts: list[Any] = encode_response_parts(response, version, correlation_id)
    return b"".join(parts)


def _limited(listed: ApiVersion, highest: Mapping[int, int]) -> ApiVersion | None:
    limit = min(listed.max_version, highest.get(listed.api_key, listed.max_version))
    return ApiVersion(listed.api_key, listed.min_version, limit) if limit >= listed.min_version else None


def client_software(frame: bytes) -> str | None:
    """The name of the client's library, from an ApiVersions request without its length."""
    try:
        _, version, _, _, position = decode_request_header(frame)
        if version < FIRST_WITH_SOFTWARE:
            return None
        request = decode(ApiVersionsRequest, version, frame, position)
    except WireError:
        return None  # Kafka answers it
    return request.client_software_name[:MAX_SOFTWARE_NAME_LENGTH]
