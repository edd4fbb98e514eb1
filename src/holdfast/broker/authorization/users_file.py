"""The users file: users with salted hashes of their passwords, and access control lists.

One JSON file, replaced as a whole. `holdfast users` edits it; a running broker notices the change.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from holdfast.broker.authorization.acls import (
    OPERATIONS,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    normalize_host,
)
from holdfast.broker.authorization.decoy_credentials import PLAIN, strongest_credential
from holdfast.broker.authorization.scram import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    Credential,
    make_credential,
)
from holdfast.broker.config.security import SCRAM_MECHANISMS
from holdfast.log import disk

VERSION: Final = 1
OWNER_ONLY: Final = 0o600
MAX_NAME_LENGTH: Final = 200
"""Characters of a user's name. The SCRAM tokens that contain it are bounded, too."""
MIN_SALT_BYTES: Final = 12
MAX_USERS: Final = 10_000
MAX_ACLS: Final = 10_000
"""The limit up to which AlterUserScramCredentials and CreateAcls can fill the file. Each change writes the whole file,
and each authorization scans the ACLs of its resource type."""


class UsersFileError(Exception):
    """The file cannot be used; the text is one sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class Users:
    """The content of the file."""

    credentials: Mapping[str, Mapping[str, Credential]] = field(default_factory=dict)
    """By user and mechanism."""
    super_users: frozenset[str] = frozenset()
    acls: frozenset[Acl] = frozenset()
    decoy_secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    """The decoy credentials of unknown users are derived from it. They are the same each time, also after a restart, so
    that clients cannot find out which users exist."""

    def credential(self, mechanism: str, name: str) -> Credential | None:
        of_user = self.credentials.get(name, {})
        return strongest_credential(of_user) if mechanism == PLAIN else of_user.get(mechanism)

    def with_user(self, name: str, password: str, iterations: int) -> Users:
        validate_name(name)
        made = {mechanism: make_credential(mechanism, password, iterations) for mechanism in SCRAM_MECHANISMS}
        return replace(self, credentials={**self.credentials, name: made})

    def without_user(self, name: str) -> Users:
        """Removes the user's ACLs, too, because a later user of that name may be another person."""
        principal = f"User:{name}"
        return replace(
            self,
            credentials={user: found for user, found in self.credentials.items() if user != name},
            super_users=self.super_users - {principal},
            acls=frozenset(acl for acl in self.acls if acl.principal != principal),
        )


def validate_name(name: str) -> None:
    # Only characters that SASLprep leaves unchanged, so that all clients mean the same user. Commas and colons would be
    # misread in lists of principals.
    if name == "ANONYMOUS":
        raise UsersFileError("'ANONYMOUS' is reserved for unauthenticated clients")
    if len(name) > MAX_NAME_LENGTH:
        raise UsersFileError(f"a user's name has at most {MAX_NAME_LENGTH} characters, not {len(name)}")
    if not name or not name.isascii() or not name.isprintable() or any(one in " ,;:\"'\\*" for one in name):
        raise UsersFileError(
            f"{name!r} cannot be a user's name: it may have ASCII letters, digits and signs, "
            "but no space, comma, semicolon, colon, quote, backslash or asterisk"
        )


# -- the file ----------------------------------------------------------------------------------------------------------


def read_users(path: Path) -> Users:
    try:
        with open(path, "rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o007:
                raise UsersFileError(f"the users file {path} can be read by all users of this machine: chmod 600 it")
            if mode & 0o020:
                # A member of the file's group could become a super user.
                raise UsersFileError(f"the users file {path} can be written by its group: chmod 640 or 600 it")
            content = file.read()
    except OSError as error:
        raise UsersFileError(f"cannot read the users file {path}: {error.strerror}") from None
    try:
        return _users(json.loads(content))
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise UsersFileError(f"the users file {path} is damaged: {type(error).__name__}: {error}") from None


def edit_users(path: Path, change: Callable[[Users], Users], *, create: bool = False) -> Users:
    """Changes the file and returns its content. Edits are serialized, so that none undoes another."""
    with _locked(path):
        before = Users() if create and not path.exists() else read_users(path)
        after = change(before)
        if after != before or not path.exists():
            write_users(path, after)
    return after


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """The directory is locked, because the file itself is replaced."""
    try:
        fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise UsersFileError(f"cannot use the directory {path.parent}: {error.strerror}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def write_users(path: Path, users: Users) -> None:
    """Replaces the whole file, so that a reader finds the old content or the new. Only the owner can read it."""
    temporary = path.with_name(f"{path.name}.tmp")
    data = (json.dumps(_to_json(users), indent=1) + "\n").encode()
    try:
        disk.unlink(temporary)  # left by a kill
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWNER_ONLY)
        try:
            try:
                disk.write_at(fd, [data], 0)
                os.fsync(fd)
            finally:
                os.close(fd)
            _keep_owner(path, temporary)
            disk.rename(temporary, path)
            disk.sync_directory(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsersFileError(f"cannot write the users file {path}: {error.strerror}") from None


def _keep_owner(path: Path, temporary: Path) -> None:
    """The broker may run as another user, who owns the file."""
    try:
        before = path.stat()
    except FileNotFoundError:
        return
    if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
        os.chown(temporary, before.st_uid, before.st_gid)
    temporary.chmod(stat.S_IMODE(before.st_mode) & 0o640)


def _users(tree: Any) -> Users:
    if tree["version"] != VERSION:
        raise ValueError(f"version {tree['version']}, known here is {VERSION}")
    credentials = {}
    for name, of_user in dict(tree["users"]).items():
        validate_name(name)
        credentials[name] = {mechanism: _credential(mechanism, one) for mechanism, one in dict(of_user).items()}
    decoy_secret = _bytes(tree["decoy_secret"])
    if len(decoy_secret) < 16:
        raise ValueError("decoy_secret is too short")
    return Users(
        credentials,
        frozenset(str(principal) for principal in tree["super_users"]),
        frozenset(_acl(one) for one in tree["acls"]),
        decoy_secret,
    )


def _credential(mechanism: str, tree: Any) -> Credential:
    if mechanism not in SCRAM_MECHANISMS:
        raise ValueError(f"a credential for {mechanism}, known here are {', '.join(SCRAM_MECHANISMS)}")
    found = Credential(
        mechanism, int(tree["iterations"]), _bytes(tree["salt"]), _bytes(tree["stored_key"]), _bytes(tree["server_key"])
    )
    if not MIN_ITERATIONS <= found.iterations <= MAX_ITERATIONS or len(found.salt) < MIN_SALT_BYTES:
        raise ValueError(f"{found.iterations} iterations and a salt of {len(found.salt)} bytes")
    return found


def _acl(tree: Any) -> Acl:
    acl = Acl(
        str(tree["principal"]),
        ResourceType[tree["resource_type"]],
        str(tree["name"]),
        Operation[tree["operation"]],
        PatternType[tree.get("pattern_type", "LITERAL")],
        Permission[tree.get("permission", "ALLOW")],
        normalize_host(str(tree.get("host", "*"))),
    )
    if not acl.principal.startswith("User:") or not acl.name:
        raise ValueError(f"an ACL for {acl.principal!r} on {acl.name!r}")
    if acl.operation is not Operation.ALL and acl.operation not in OPERATIONS[acl.resource_type]:
        raise ValueError(f"an ACL for {acl.operation.name} on a {acl.resource_type.name}")
    return acl


def _to_json(users: Users) -> dict[str, Any]:
    return {
        "version": VERSION,
        "users": {
            name: {
                mechanism: {
                    "iterations": one.iterations,
                    "salt": _text(one.salt),
                    "stored_key": _text(one.stored_key),
                    "server_key": _text(one.server_key),
                }
                for mechanism, one in sorted(of_user.items())
            }
            for name, of_user in sorted(users.credentials.items())
        },
        "super_users": sorted(users.super_users),
        "acls": [
            {
                "principal": acl.principal,
                "permission": acl.permission.name,
                "operation": acl.operation.name,
                "resource_type": acl.resource_type.name,
                "pattern_type": acl.pattern_type.name,
                "name": acl.name,
                "host": acl.host,
            }
            for acl in sorted(users.acls)
        ],
        "decoy_secret": _text(users.decoy_secret),
    }


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
