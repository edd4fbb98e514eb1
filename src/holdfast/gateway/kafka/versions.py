"""The API versions that a broker supports: the first question on every connection (KIP-511)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final

from holdfast.client.addresses import Address
from holdfast.client.errors import error_code
from holdfast.gateway.kafka.errors import KafkaRefused
from holdfast.version import VERSION
from holdfast.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.message import APIS, Api

_SOFTWARE_NAME: Final = "holdfast"
_SOFTWARE_VERSION: Final = re.sub(r"[^A-Za-z0-9.-]", "-", VERSION)  # Kafka rejects other characters

AskVersions = Callable[[ApiVersionsRequest, int], Awaitable[ApiVersionsResponse]]
"""Sends ApiVersions in this version, and returns the response."""


class BrokerVersions:
    def __init__(self, address: Address) -> None:
        self._address = address
        self._theirs: dict[int, tuple[int, int]] = {}
        self._common: dict[int, tuple[int, int]] = {}
        """The versions that both sides support."""

    @property
    def is_known(self) -> bool:
        return bool(self._theirs)

    async def negotiate(self, ask: AskVersions) -> None:
        """Sends ApiVersions in our highest version. If the broker does not support it, sends it in a version that the
        broker names, or 0. Raises KafkaRefused."""
        request = ApiVersionsRequest(_SOFTWARE_NAME, _SOFTWARE_VERSION)
        lowest, highest = API_VERSIONS.versions
        response = await ask(request, highest)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            own = [one for one in response.api_keys if one.api_key == API_VERSIONS.key]
            version = min(own[0].max_version, highest) if own else lowest
            response = await ask(request, max(version, lowest))
        if response.error_code:
            code = error_code(response.error_code)
            raise KafkaRefused(f"{self._address}: ApiVersions is answered with {code.name}", code)
        self._theirs = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}
        for key, (oldest, newest) in self._theirs.items():
            api = APIS.get(key)
            if api is not None and max(oldest, api.versions[0]) <= min(newest, api.versions[1]):
                self._common[key] = max(oldest, api.versions[0]), min(newest, api.versions[1])

    def highest(self, api: Api, highest: int | None = None) -> int:
        """The highest version that both sides support, up to `highest`. Raises KafkaRefused."""
        common = self._common.get(api.key)
        if common is not None and (highest is None or common[0] <= highest):
            return common[1] if highest is None else min(common[1], highest)
        newest = api.versions[1] if highest is None else min(highest, api.versions[1])
        raise self._unsupported(api, f"from {api.versions[0]} to {newest}")

    def check(self, api: Api, version: int) -> None:
        """Raises KafkaRefused if one of the sides does not support the version."""
        common = self._common.get(api.key)
        if common is None or not common[0] <= version <= common[1]:
            raise self._unsupported(api, str(version))

    def _unsupported(self, api: Api, wanted: str) -> KafkaRefused:
        theirs = self._theirs.get(api.key)
        has = "does not have it" if theirs is None else f"has versions {theirs[0]} to {theirs[1]}"
        return KafkaRefused(
            f"{api.name} is needed in version {wanted}, but the broker at {self._address} {has}: "
            f"it is too old or too new for this Holdfast ({VERSION})",
            ErrorCode.UNSUPPORTED_VERSION,
        )
