"""Requests that only a gateway has."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.config import read_config
from holdfast.client.coordinator_client import CoordinatorClient
from holdfast.client.errors import GroupError, UnsupportedVersion, error_code
from holdfast.client.runtime import SYSTEM, Runtime
from holdfast.client.settings import NAMES, NetworkSettings
from holdfast.wire.apis.release_group import RELEASE_GROUP, ReleaseGroupRequest, ReleaseGroupResponse
from holdfast.wire.error_codes import ErrorCode

_NAMES: Final = NAMES | {"default.api.timeout.ms"}
"""As of `Admin`, so that one file of settings is for both."""
_ADVICE: Final = {
    ErrorCode.GROUP_ID_NOT_FOUND: "the gateway has no such group",
    ErrorCode.NON_EMPTY_GROUP: "it has members: stop them, or remove them, first",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "this user may not do that to the group",
}


class GatewayAdmin:
    def __init__(self, config: Mapping[str, Any], *, _runtime: Runtime = SYSTEM) -> None:
        read = read_config(config, {}, _NAMES)
        self._cluster = ClusterClient(NetworkSettings.of_groups(read), runtime=_runtime)

    def close(self) -> None:
        self._cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def release_group(self, group_id: str, timeout: float) -> int:
        """Give a group without members back to Kafka's own coordinator. Returns the number of partitions whose
        committed offsets were written to Kafka."""
        request = ReleaseGroupRequest(group_id)
        deadline = self._cluster.clock.now() + timeout
        with CoordinatorClient(self._cluster, group_id) as asking:
            try:
                response: ReleaseGroupResponse = asking.ask(RELEASE_GROUP, lambda _: request, _error_code, deadline)
            except UnsupportedVersion as error:
                raise UnsupportedVersion(
                    f"group {group_id!r} cannot be released: its coordinator is a broker, not a Holdfast gateway",
                    code=error.code,
                ) from error
        if response.error_code:
            code = error_code(response.error_code)
            why = response.error_message or _ADVICE.get(code, "see the log of the gateway")
            raise GroupError(f"group {group_id!r}: {code.name}: {why}", code=code)
        return response.partition_count


def _error_code(response: ReleaseGroupResponse) -> int:
    return response.error_code
