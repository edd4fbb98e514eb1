"""The users file as a running broker goes by it: who there is, what each may do, and what changed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

from holdfast.broker.security.acls import CLUSTER_NAME, OPERATIONS, Acl, AclTable, Operation, ResourceType
from holdfast.broker.security.decoys import Decoys
from holdfast.broker.security.password_turns import PasswordTurns
from holdfast.broker.security.scram import Credential
from holdfast.broker.security.settings import SecuritySettings
from holdfast.broker.security.users import Users, UsersFileError, edit_users, read_users
from holdfast.broker.security.watching import WatchedFiles

logger = logging.getLogger(__name__)

REMEMBERED: Final = 50_000
"""Answers that are kept. Names come from clients: without a bound they could fill the memory."""
LONGEST_REMEMBERED: Final = 300
"""Characters of a name in such an answer. A topic's has at most 249; a group's, or a stranger's invention, may have
thousands."""
TOLD_IN_A_SECOND: Final = 100
"""Refusals that are written to the log; the others of that second are counted. One request can name thousands."""

Question = tuple[str, str, Operation, ResourceType, str]


class Prepared:
    """A users file with what is looked up in it. For a long file this takes a while: not for the event loop."""

    def __init__(self, users: Users, settings: SecuritySettings) -> None:
        self.users = users
        self.answers: dict[Question, bool] = {}
        """What was asked before. Kept here, so that a worker thread that asks while the file is replaced cannot leave
        an answer of the old file behind."""
        self.acls = tuple(sorted(users.acls))
        self.decoys = Decoys(users.credentials, users.decoy_secret)
        self.table = AclTable(
            users.acls,
            (*users.super_users, *settings.super_users),
            allow_everyone_if_no_acl_found=settings.allow_everyone_if_no_acl_found,
        )


class UserDesk:
    def __init__(self, settings: SecuritySettings, now: Callable[[], float] = monotonic) -> None:
        """Raises UsersFileError."""
        assert settings.users_file is not None
        self._settings = settings
        self._now = now
        self.guesses = PasswordTurns()
        self._path = settings.users_file
        self._watched = WatchedFiles([self._path])
        self._told: set[Question] = set()
        """Refusals that are in the log: one line for each, however often it is tried."""
        self._second = 0
        self._told_in_it = 0
        self._in_force = self.prepared(read_users(self._path))
        self._warn()

    def prepared(self, users: Users) -> Prepared:
        return Prepared(users, self._settings)

    def _warn(self) -> None:
        users = self._in_force.users
        if not (users.acls or users.super_users or self._settings.super_users):
            logger.warning(
                "%s grants nothing to anybody: nobody can do anything until `holdfast users grant` or a super user",
                self._path,
            )

    # -- the file may change -------------------------------------------------------------------------------------------

    @property
    def changed(self) -> bool:
        return self._watched.changed

    def read_again(self) -> Prepared | None:
        """The file as it is now; None if it cannot be used. Reads a file: not for the event loop."""
        self._watched.look()
        try:
            return self.prepared(read_users(self._path))
        except UsersFileError as error:
            logger.error("%s; users and ACLs that were read before stay in force", error)
            return None

    def edit(self, change: Callable[[Users], Users]) -> Prepared:
        """The file with the change, which is on disk. Not for the event loop. Raises UsersFileError."""
        return self.prepared(edit_users(self._path, change))

    def replace(self, prepared: Prepared) -> frozenset[str]:
        """Goes by these users from now on. Returns the principals that were removed or have a new password:
        connections that authenticated as one of them must not stay."""
        before, users = self._in_force.users, prepared.users
        if users == before:
            return frozenset()
        self._in_force = prepared
        self._told.clear()
        logger.info("%s is in force: %d users, %d ACLs", self._path, len(users.credentials), len(users.acls))
        return frozenset(
            f"User:{name}" for name, had in before.credentials.items() if users.credentials.get(name) != had
        )

    @property
    def users(self) -> Users:
        return self._in_force.users

    @property
    def acls(self) -> tuple[Acl, ...]:
        """Sorted."""
        return self._in_force.acls

    # -- questions -----------------------------------------------------------------------------------------------------

    def credential(self, mechanism: str, username: str) -> Credential:
        """The user's, or that of nobody. The client cannot tell which: the decoy is made in either case, so that both
        take the same time."""
        decoy = self._in_force.decoys.credential(mechanism, username)
        return self._in_force.users.credential(mechanism, username) or decoy

    def access(self, principal: str, host: str) -> Access:
        return Access(self, principal, host)

    def allows(self, question: Question) -> bool:
        answer = self.allows_quietly(question)
        if not answer and question not in self._told:
            self._tell(question)
        return answer

    def _tell(self, question: Question) -> None:
        second = int(self._now())
        if second != self._second:
            self._tell_of_untold()
            self._second, self._told_in_it = second, 0
        self._told_in_it += 1
        if self._told_in_it > TOLD_IN_A_SECOND:
            return
        principal, host, operation, kind, name = question
        if len(name) <= LONGEST_REMEMBERED:
            self._told.add(question)
        # As Python writes them: names come from clients, and may have line ends in them.
        logger.info("%r at %s may not %s %s %.249r", principal, host, operation.name, kind.name, name)

    def _tell_of_untold(self) -> None:
        untold = self._told_in_it - TOLD_IN_A_SECOND
        if untold > 0:
            logger.warning("%d more refusals came in one second and are not told one by one", untold)

    def allows_quietly(self, question: Question) -> bool:
        """For what is asked only to know what to show."""
        in_force = self._in_force
        answer = in_force.answers.get(question)
        if answer is None:
            answer = in_force.table.allows(*question)
            if len(question[-1]) <= LONGEST_REMEMBERED:
                if len(in_force.answers) >= REMEMBERED:
                    in_force.answers.clear()
                    self._told.clear()
                in_force.answers[question] = answer
        return answer

    def allows_any(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        return self._in_force.table.allows_any(principal, host, operation, kind)


class Access:
    """What one principal may do, from where it is."""

    __slots__ = ("_desk", "_host", "_principal")

    def __init__(self, desk: UserDesk, principal: str, host: str) -> None:
        self._desk = desk
        self._principal = principal
        self._host = host

    def topic(self, operation: Operation, name: str) -> bool:
        return self._desk.allows((self._principal, self._host, operation, ResourceType.TOPIC, name))

    def group(self, operation: Operation, name: str) -> bool:
        return self._desk.allows((self._principal, self._host, operation, ResourceType.GROUP, name))

    def cluster(self, operation: Operation) -> bool:
        return self._desk.allows((self._principal, self._host, operation, ResourceType.CLUSTER, CLUSTER_NAME))

    def sees(self, kind: ResourceType, name: str) -> bool:
        """Whether it is in a list of all. What is left out of one was not refused to anybody."""
        return self._desk.allows_quietly((self._principal, self._host, Operation.DESCRIBE, kind, name))

    def any_topic(self, operation: Operation) -> bool:
        return self._desk.allows_any(self._principal, self._host, operation, ResourceType.TOPIC)

    def operations(self, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Bit n is set if Kafka's operation n is allowed: what clients are told if they ask what they may do."""
        return sum(
            1 << operation
            for operation in OPERATIONS[kind]
            if self._desk.allows_quietly((self._principal, self._host, operation, kind, name))
        )
