"""A response that is completed later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class PendingAnswer:
    """A response that is completed later, without a task that waits for it."""

    __slots__ = ()

    def on_complete(self, action: Callable[[Any], None] | None) -> None:
        """Calls the action with the response, at once if it is complete. None removes the action.

        The action must not serve another request at once, because the command in progress may complete further
        responses.
        """
        raise NotImplementedError

    async def wait(self) -> Any:
        """The response, for a coroutine."""
        raise NotImplementedError
