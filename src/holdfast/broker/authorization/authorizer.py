"""The authorizer: the users and ACLs that are in force, and the decisions for each client."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Final, Protocol

from holdfast.broker.authorization.acls import CLUSTER_NAME, OPERATIONS, Acl, AclTable, Operation, ResourceType
from holdfast.broker.authorization.decoy_credentials import DecoyCredentials
from holdfast.broker.authorization.password_verifier import FairPasswordVerifier
from holdfast.broker.authorization.sasl import load_scram
from holdfast.broker.authorization.scram import Credential
from holdfast.broker.authorization.users_file import Users, UsersFileError, edit_users, read_users
from holdfast.broker.config.security import SCRAM_MECHANISMS, SecuritySettings
from holdfast.broker.util.file_watcher import FileWatcher

logger = logging.getLogger(__name__)

MAX_CACHED_DECISIONS: Final = 50_000
"""Cached decisions. The cache is bounded because clients choose the names and could otherwise fill the memory."""
MAX_CACHED_NAME_LENGTH: Final = 300
"""Characters of a name in a cached decision. A topic's has at most 249; other names from clients may have
thousands."""
MAX_LOGGED_DENIALS_PER_SECOND: Final = 100
"""Denials logged in one second; further ones are counted. One request can name thousands of resources."""

AclQuery = tuple[str, str, Operation, ResourceType, str]


class UsersSnapshot:
    """A users file prepared for queries. Do not call this on the event loop: a long file takes a while."""

    def __init__(self, users: Users, settings: SecuritySettings) -> None:
        self.users = users
        self.decisions: dict[AclQuery, bool] = {}
        """The cache. It belongs to the snapshot, so that a worker thread that queries while the file is replaced cannot
        cache a decision of the old file."""
        self.acls = tuple(sorted(users.acls))
        self.decoys = DecoyCredentials(users.credentials, users.decoy_secret)
        self.table = AclTable(
            users.acls,
            (*users.super_users, *settings.super_users),
            allow_everyone_if_no_acl_found=settings.allow_everyone_if_no_acl_found,
        )


class Authorizer:
    def __init__(self, settings: SecuritySettings, now: Callable[[], float] = monotonic) -> None:
        """Raises UsersFileError."""
        assert settings.users_file is not None
        if any(set(SCRAM_MECHANISMS).intersection(listener.mechanisms) for listener in settings.listeners.values()):
            load_scram()
        self._settings = settings
        self._now = now
        self.password_verifier = FairPasswordVerifier()
        self._path = settings.users_file
        self._watcher = FileWatcher([self._path])
        self._logged_denials: set[AclQuery] = set()
        """Denials that were logged. Each is logged once, however often the client retries."""
        self._current_second = 0
        self._denials_in_second = 0
        self._current = self.snapshot_of(read_users(self._path))
        self._warn()

    def snapshot_of(self, users: Users) -> UsersSnapshot:
        return UsersSnapshot(users, self._settings)

    def _warn(self) -> None:
        users = self._current.users
        if not (users.acls or users.super_users or self._settings.super_users):
            logger.warning(
                "%s grants nothing: no client can do anything until `holdfast users grant` or a super user",
                self._path,
            )

    # -- reloading the file --------------------------------------------------------------------------------------------

    @property
    def changed(self) -> bool:
        return self._watcher.changed

    def reload(self) -> UsersSnapshot | None:
        """The current content of the file; None if it cannot be used. Do not call this on the event loop: it reads a
        file."""
        self._watcher.refresh()
        try:
            return self.snapshot_of(read_users(self._path))
        except UsersFileError as error:
            logger.error("%s; users and ACLs that were read before stay in force", error)
            return None

    def edit(self, change: Callable[[Users], Users]) -> UsersSnapshot:
        """The file with the change, which is on disk. Do not call this on the event loop. Raises UsersFileError."""
        return self.snapshot_of(edit_users(self._path, change))

    def replace(self, prepared: UsersSnapshot) -> frozenset[str]:
        """Puts these users in force. Returns the principals that were removed or have a new password. Connections that
        authenticated as one of them must be closed."""
        before, users = self._current.users, prepared.users
        if users == before:
            return frozenset()
        self._current = prepared
        self._logged_denials.clear()
        logger.info("%s is in force: %d users, %d ACLs", self._path, len(users.credentials), len(users.acls))
        return frozenset(
            f"User:{name}" for name, had in before.credentials.items() if users.credentials.get(name) != had
        )

    @property
    def users(self) -> Users:
        return self._current.users

    @property
    def acls(self) -> tuple[Acl, ...]:
        """Sorted."""
        return self._current.acls

    # -- queries -------------------------------------------------------------------------------------------------------

    def credential(self, mechanism: str, username: str) -> Credential:
        """The user's credential, or a decoy. The decoy is made in both cases, so that both take the same time and the
        client cannot tell which it got."""
        decoy = self._current.decoys.credential(mechanism, username)
        return self._current.users.credential(mechanism, username) or decoy

    def permissions_of(self, principal: str, host: str) -> ClientPermissions:
        return ClientPermissions(self, principal, host)

    def is_allowed(self, query: AclQuery) -> bool:
        decision = self.is_allowed_unlogged(query)
        if not decision and query not in self._logged_denials:
            self._log_denial(query)
        return decision

    def _log_denial(self, query: AclQuery) -> None:
        second = int(self._now())
        if second != self._current_second:
            self._log_suppressed()
            self._current_second, self._denials_in_second = second, 0
        self._denials_in_second += 1
        if self._denials_in_second > MAX_LOGGED_DENIALS_PER_SECOND:
            return
        principal, host, operation, kind, name = query
        if len(name) <= MAX_CACHED_NAME_LENGTH:
            self._logged_denials.add(query)
        # With %r: names come from clients, and may contain line breaks.
        logger.info("%r at %s may not %s %s %.249r", principal, host, operation.name, kind.name, name)

    def _log_suppressed(self) -> None:
        suppressed = self._denials_in_second - MAX_LOGGED_DENIALS_PER_SECOND
        if suppressed > 0:
            logger.warning("%d more denials in one second are not logged one by one", suppressed)

    def is_allowed_unlogged(self, query: AclQuery) -> bool:
        """For queries that only decide what a response shows."""
        current = self._current
        decision = current.decisions.get(query)
        if decision is None:
            decision = current.table.allows(*query)
            if len(query[-1]) <= MAX_CACHED_NAME_LENGTH:
                if len(current.decisions) >= MAX_CACHED_DECISIONS:
                    current.decisions.clear()
                    self._logged_denials.clear()
                current.decisions[query] = decision
        return decision

    def allows_any(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        return self._current.table.allows_any(principal, host, operation, kind)


class Decisions(Protocol):
    """Decides what a principal may do."""

    def is_allowed(self, query: AclQuery) -> bool: ...

    def is_allowed_unlogged(self, query: AclQuery) -> bool: ...

    def allows_any(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool: ...


class ClientPermissions:
    """The permissions of one principal at its host."""

    __slots__ = ("_authorizer", "_host", "_principal")

    def __init__(self, authorizer: Decisions, principal: str, host: str) -> None:
        self._authorizer = authorizer
        self._principal = principal
        self._host = host

    def topic(self, operation: Operation, name: str) -> bool:
        return self._authorizer.is_allowed((self._principal, self._host, operation, ResourceType.TOPIC, name))

    def group(self, operation: Operation, name: str) -> bool:
        return self._authorizer.is_allowed((self._principal, self._host, operation, ResourceType.GROUP, name))

    def cluster(self, operation: Operation) -> bool:
        return self._authorizer.is_allowed((self._principal, self._host, operation, ResourceType.CLUSTER, CLUSTER_NAME))

    def can_see(self, kind: ResourceType, name: str) -> bool:
        """Whether a list of all resources contains it. An omission from a list is not a denial and is not logged."""
        return self._authorizer.is_allowed_unlogged((self._principal, self._host, Operation.DESCRIBE, kind, name))

    def any_topic(self, operation: Operation) -> bool:
        return self._authorizer.allows_any(self._principal, self._host, operation, ResourceType.TOPIC)

    def operations(self, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Bit n is set if Kafka's operation n is allowed."""
        return sum(
            1 << operation
            for operation in OPERATIONS[kind]
            if self._authorizer.is_allowed_unlogged((self._principal, self._host, operation, kind, name))
        )
