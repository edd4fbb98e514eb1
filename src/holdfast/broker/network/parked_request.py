"""A request whose answer is not ready. The requests behind it on its connection wait, too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from holdfast.broker.api.replies import NO_REPLY, PreEncoded, ReplyAndClose
from holdfast.broker.network.reply_encoding import encode_in_slices, free_response, has_elements
from holdfast.broker.network.request_header import Frame, RequestHeader
from holdfast.broker.util.pending_answer import PendingAnswer
from holdfast.broker.util.slices import SliceScheduler
from holdfast.wire.apis.fetch import FETCH
from holdfast.wire.apis.join_group import JOIN_GROUP
from holdfast.wire.apis.join_groups import JOIN_GROUPS
from holdfast.wire.apis.sync_group import SYNC_GROUP

WAITS_FOR_OTHER_CLIENTS: Final = (FETCH, JOIN_GROUP, JOIN_GROUPS, SYNC_GROUP)
"""Requests that wait for other clients: for records, or for the members of a group."""


class ParkedRequest:
    __slots__ = ("_pending", "_response", "_slices", "_task", "began", "correlation_id", "frame", "header")

    def __init__(
        self, header: RequestHeader, correlation_id: int, frame: Frame, began: float, slices: SliceScheduler
    ) -> None:
        self.header = header
        self.correlation_id = correlation_id
        self.frame = frame
        self.began = began
        self._slices = slices
        self._pending: PendingAnswer | None = None
        self._response: Any = None
        self._task: asyncio.Task[Any] | None = None

    def wait(self, answer: Coroutine[Any, Any, Any] | PendingAnswer, on_done: Callable[[ParkedRequest], None]) -> None:
        if isinstance(answer, PendingAnswer):
            self._pending = answer
            answer.on_complete(partial(self._completed, on_done))
        else:
            self._start_task(answer, on_done)

    def _completed(self, on_done: Callable[[ParkedRequest], None], response: Any) -> None:
        """A short response needs no task, because thousands of them are sent at once when a large group is formed."""
        if self._pending is not None and has_elements(response):
            self._start_task(self._pending.wait(), on_done)
        else:
            self._response = response
            asyncio.get_running_loop().call_soon(on_done, self)

    def _start_task(self, answer: Coroutine[Any, Any, Any], on_done: Callable[[ParkedRequest], None]) -> None:
        self._task = asyncio.get_running_loop().create_task(self._encoded(answer))
        self._task.add_done_callback(partial(self._task_ended, on_done))
        self._task.add_done_callback(lambda _: answer.close())  # it may have been cancelled before it began

    def _task_ended(self, on_done: Callable[[ParkedRequest], None], task: asyncio.Task[Any]) -> None:
        succeeded = not task.cancelled() and task.exception() is None
        if succeeded and isinstance(task.result(), PendingAnswer):
            # A long SyncGroup, for example, was decoded in slices. Now it waits like short requests.
            self._task = None
            self.wait(task.result(), on_done)
        else:
            on_done(self)

    @property
    def waits_for_other_clients(self) -> bool:
        return self.header.api in WAITS_FOR_OTHER_CLIENTS

    @property
    def is_cancelled(self) -> bool:
        return self._task is not None and self._task.cancelled()

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        elif self._pending is not None:
            self._pending.on_complete(None)

    def result(self) -> Any:
        """The response, encoded unless it is short. Propagates the handler's exceptions."""
        return self._response if self._task is None else self._task.result()

    async def _encoded(self, answer: Coroutine[Any, Any, Any]) -> Any:
        """A response that took long to make may take long to encode."""
        response = await answer
        if type(response) in (PreEncoded, ReplyAndClose) or response is NO_REPLY or isinstance(response, PendingAnswer):
            return response
        if not has_elements(response):
            return response
        encoded = await self._slices.run(encode_in_slices(response, self.header.context.api_version))
        if not self.waits_for_other_clients:  # their responses may be shared with other requests
            await self._slices.run(free_response(response))
        return encoded
