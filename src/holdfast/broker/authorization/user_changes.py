"""Changes of the users file while the broker runs: by requests (KIP-554, CreateAcls) and by an editor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from holdfast.broker.authorization.authorizer import Authorizer
from holdfast.broker.authorization.users_file import Users


class Session(Protocol):
    """A connection of a user."""

    principal: str


EndSessions = Callable[[frozenset[str], Session | None], None]
"""Ends the connections of these principals, except for one."""


class UserChanges:
    def __init__(self, authorizer: Authorizer, end_sessions: EndSessions) -> None:
        self.authorizer = authorizer
        self._end_sessions = end_sessions
        self._lock = asyncio.Lock()

    async def edit(self, change: Callable[[Users], Users], requester: Session) -> bool:
        """Changes the users file and puts the change in force. If it raises UsersFileError, nothing has changed.

        Returns whether `requester` must be closed after its reply, because the password of its own user has changed.
        """
        async with self._lock:
            outdated = self.authorizer.replace(await asyncio.to_thread(self.authorizer.edit, change))
        self._end_sessions(outdated, requester)
        return requester.principal in outdated

    async def reload(self) -> None:
        """Another program has changed the file."""
        async with self._lock:
            found = await asyncio.to_thread(self.authorizer.reload)
            outdated = frozenset[str]() if found is None else self.authorizer.replace(found)
        self._end_sessions(outdated, None)
