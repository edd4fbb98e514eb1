"""The brokers that coordinate groups and transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from holdfast.client.errors import error_code
from holdfast.gateway.brokers import BrokerDirectory
from holdfast.gateway.kafka.connection import KafkaConnection
from holdfast.gateway.kafka.errors import KafkaRefused, KafkaUnreachable
from holdfast.gateway.kafka.shared_tasks import SharedTasks
from holdfast.wire.apis.find_coordinator import (
    FIND_COORDINATOR,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FoundCoordinator,
)
from holdfast.wire.error_codes import ErrorCode

_MAX_KEYS: Final = 100_000
_FIRST_BATCHED: Final = 4
_KEY_TYPES: Final = {0: "group", 1: "transactional id"}
_NOT_YET: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
"""Among others, while Kafka creates the internal topic for the first group or transaction."""
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.1, 1.0
_ATTEMPT_S: Final = 1.0
"""With less time left, the broker is not asked again."""

Key = tuple[str, int]
"""The key, and its type."""
MakeRequest = Callable[[KafkaConnection], FindCoordinatorRequest]
AskAny = Callable[[MakeRequest, float], Awaitable[FindCoordinatorResponse]]
"""The response of any broker to the request that is made for its connection, within so many seconds."""


class Coordinators:
    def __init__(self, ask_any: AskAny, brokers: BrokerDirectory) -> None:
        self._ask_any = ask_any
        self._brokers = brokers
        self._known: dict[Key, int] = {}
        self._asking: SharedTasks[Key, int] = SharedTasks()

    async def coordinator_of(self, key: str, key_type: int, *, refresh: bool, timeout_s: float) -> int:
        """Raises KafkaUnreachable if there is none in time, and KafkaRefused if Kafka does not accept the key."""
        if not refresh:
            known = self._known.get((key, key_type))
            if known is not None and known in self._brokers:
                return known
        return await self._asking.run((key, key_type), lambda: self._find(key, key_type, timeout_s))

    async def close(self) -> None:
        await self._asking.close()

    async def _find(self, key: str, key_type: int, timeout_s: float) -> int:
        self._known.pop((key, key_type), None)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        delay_s = _FIRST_DELAY_S
        while True:
            found = await self._ask(key, key_type, deadline - loop.time())
            code = error_code(found.error_code)
            if code == ErrorCode.NONE:
                break
            text = f"FindCoordinator for {_KEY_TYPES.get(key_type, 'key')} {key!r} is answered with {code.name}"
            if found.error_message:
                text += f": {found.error_message}"
            if code not in _NOT_YET:
                raise KafkaRefused(text, code)
            if loop.time() + delay_s + _ATTEMPT_S >= deadline:
                raise KafkaUnreachable(text)
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, _LONGEST_DELAY_S)
        if len(self._known) >= _MAX_KEYS:
            del self._known[next(iter(self._known))]
        self._known[key, key_type] = found.node_id
        return found.node_id

    async def _ask(self, key: str, key_type: int, timeout_s: float) -> FoundCoordinator:
        def request_for(connection: KafkaConnection) -> FindCoordinatorRequest:
            if connection.version_of(FIND_COORDINATOR) >= _FIRST_BATCHED:
                return FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            return FindCoordinatorRequest(key=key, key_type=key_type)

        response = await self._ask_any(request_for, timeout_s)
        if not response.coordinators:  # an older version
            return FoundCoordinator(
                key, response.node_id, response.host, response.port, response.error_code, response.error_message
            )
        found = next((one for one in response.coordinators if one.key == key), None)
        if found is None:
            raise KafkaUnreachable(f"FindCoordinator for {key!r} is answered without it")
        return found
