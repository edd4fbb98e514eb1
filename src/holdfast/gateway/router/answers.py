"""Answering one request of a client at a time, at once or later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from struct import Struct
from typing import Any

from holdfast.gateway.kafka.errors import KafkaUnreachable
from holdfast.gateway.router import api_versions
from holdfast.gateway.router.authentication import Authentication
from holdfast.gateway.router.environment import RouterEnvironment
from holdfast.gateway.router.ports import RoutedClient
from holdfast.gateway.router.upstream import Upstream
from holdfast.wire.apis.api_versions import API_VERSIONS
from holdfast.wire.apis.sasl_authenticate import SASL_AUTHENTICATE
from holdfast.wire.apis.sasl_handshake import SASL_HANDSHAKE

_header = Struct(">hhi").unpack_from
_length = Struct(">i").pack


class Answers:
    __slots__ = ("_authentication", "_client", "_env", "_on_done", "_task", "_upstream")

    def __init__(
        self,
        env: RouterEnvironment,
        client: RoutedClient,
        upstream: Upstream,
        authentication: Authentication,
        on_done: Callable[[asyncio.Task[bytes]], None],
    ) -> None:
        """`on_done` is not called after `cancel`."""
        self._env = env
        self._client = client
        self._upstream = upstream
        self._authentication = authentication
        self._on_done = on_done
        self._task: asyncio.Task[bytes] | None = None

    def begin(self, frame: bytes) -> bytes | None:
        """The whole reply; None if it comes later."""
        answer = self._answer(frame)
        if isinstance(answer, bytes):
            return answer
        self._task = self._env.loop.create_task(answer)
        self._task.add_done_callback(self._done)
        return None

    def cancel(self) -> None:
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()

    def _done(self, task: asyncio.Task[bytes]) -> None:
        if task is self._task:
            self._task = None
            self._on_done(task)
        elif not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it

    def _answer(self, frame: bytes) -> bytes | Coroutine[Any, Any, bytes]:
        if self._authentication.expects_token:
            return self._authentication.token(frame)
        key, version, correlation_id = _header(frame)
        if key == API_VERSIONS.key:
            if not 0 <= version <= API_VERSIONS.versions[1]:
                return api_versions.rejected_version(frame)
            return self._api_versions(frame, version, correlation_id)
        if key == SASL_HANDSHAKE.key:
            return self._authentication.handshake(frame)
        if key == SASL_AUTHENTICATE.key:
            return self._authentication.authenticate(frame)
        return self._env.requests.answer(frame, self._client)

    async def _api_versions(self, frame: bytes, version: int, correlation_id: int) -> bytes:
        kept = self._env.kept_api_versions
        try:
            answered = await self._upstream.exchange(_length(len(frame)) + frame, correlation_id)
            kept[version] = answered
        except KafkaUnreachable:
            # The broker is down. Its port still serves groups, to clients that need not authenticate.
            if version not in kept or self._env.settings.upstream_uses_sasl:
                raise
            answered = _length(correlation_id) + kept[version][4:]
        software = api_versions.client_software(frame)
        if software is not None:
            self._client.session.client_software = software
        return api_versions.merged(answered, version, self._env.requests, self._env.highest_versions)
