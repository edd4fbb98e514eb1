"""The users file: who there is, with salted hashes of their passwords, and the access control lists.

One JSON file, replaced whole. `holdfast users` edits it, and a running broker notices.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import secrets
import stat
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from holdfast.broker.security.acls import OPERATIONS, Acl, Operation, PatternType, Permission, ResourceType, host_of
from holdfast.broker.security.scram import (
    DEFAULT_ITERATIONS,
    FEWEST_ITERATIONS,
    MOST_ITERATIONS,
    SCRAM_MECHANISMS,
    Credential,
    make_credential,
)
from holdfast.log import disk

VERSION: Final = 1
OWNER_ONLY: Final = 0o600
MAX_NAME: Final = 200
"""Characters of a user's name. A token of SCRAM that holds it is bounded, too."""
_FEWEST_SALT_BYTES: Final = 12


class UsersFileError(Exception):
    """The file cannot be used; the text is one sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class Users:
    """What the file says."""

    credentials: Mapping[str, Mapping[str, Credential]] = field(default_factory=dict)
    """By user and mechanism."""
    super_users: frozenset[str] = frozenset()
    acls: frozenset[Acl] = frozenset()
    decoy_secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    """From it comes what is told to those who ask for a user who is not there: the same at each time, and after
    each restart, so that nobody learns who is."""

    @property
    def usual_iterations(self) -> int:
        """Those that most users have."""
        counts = Counter(one.iterations for of_user in self.credentials.values() for one in of_user.values())
        return max(counts, key=lambda iterations: (counts[iterations], iterations), default=DEFAULT_ITERATIONS)

    def with_user(self, name: str, password: str, iterations: int) -> Users:
        refuse_name(name)
        made = {mechanism: make_credential(mechanism, password, iterations) for mechanism in SCRAM_MECHANISMS}
        return replace(self, credentials={**self.credentials, name: made})

    def without_user(self, name: str) -> Users:
        """Also without what was granted to him: a later user of that name is another person."""
        principal = f"User:{name}"
        return replace(
            self,
            credentials={user: found for user, found in self.credentials.items() if user != name},
            super_users=self.super_users - {principal},
            acls=frozenset(acl for acl in self.acls if acl.principal != principal),
        )


def refuse_name(name: str) -> None:
    # What SASLprep leaves as it is, so that every client means the same user; a comma or a colon would be read wrongly
    # in lists of principals.
    if name == "ANONYMOUS":
        raise UsersFileError("'ANONYMOUS' cannot be a user's name: so everybody is called who is not asked for one")
    if len(name) > MAX_NAME:
        raise UsersFileError(f"a user's name has at most {MAX_NAME} characters, not {len(name)}")
    if not name or not name.isascii() or not name.isprintable() or any(one in " ,;:\"'\\*" for one in name):
        raise UsersFileError(
            f"{name!r} cannot be a user's name: it may have ASCII letters, digits and signs, "
            "but no space, comma, semicolon, colon, quote, backslash or asterisk"
        )


# -- the file ----------------------------------------------------------------------------------------------------------


def read_users(path: Path) -> Users:
    try:
        with open(path, "rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o007:
                raise UsersFileError(f"the users file {path} is open to everybody on this machine: chmod 600 it")
            content = file.read()
    except OSError as error:
        raise UsersFileError(f"cannot read the users file {path}: {error.strerror}") from None
    try:
        return _users(json.loads(content))
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise UsersFileError(f"the users file {path} is damaged: {type(error).__name__}: {error}") from None


def write_users(path: Path, users: Users) -> None:
    """Replaces the file as a whole; whoever reads finds the old content or the new. Only its owner can read it."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    text = json.dumps(_tree(users), indent=1) + "\n"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWNER_ONLY)
        try:
            with open(fd, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(fd)
            _keep_owner(path, temporary)
            temporary.replace(path)
            disk.sync_directory(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsersFileError(f"cannot write the users file {path}: {error.strerror}") from None


def _keep_owner(path: Path, temporary: Path) -> None:
    """The broker may run as another user, to whom the file was given."""
    try:
        before = path.stat()
    except FileNotFoundError:
        return
    if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
        os.chown(temporary, before.st_uid, before.st_gid)
    temporary.chmod(stat.S_IMODE(before.st_mode) & 0o660)


def _users(tree: Any) -> Users:
    if tree["version"] != VERSION:
        raise ValueError(f"version {tree['version']}, known here is {VERSION}")
    credentials = {}
    for name, of_user in dict(tree["users"]).items():
        refuse_name(name)
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
    if not FEWEST_ITERATIONS <= found.iterations <= MOST_ITERATIONS or len(found.salt) < _FEWEST_SALT_BYTES:
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
        host_of(str(tree.get("host", "*"))),
    )
    if not acl.principal.startswith("User:") or not acl.name:
        raise ValueError(f"an ACL for {acl.principal!r} on {acl.name!r}")
    if acl.operation is not Operation.ALL and acl.operation not in OPERATIONS[acl.resource_type]:
        raise ValueError(f"an ACL for {acl.operation.name} on a {acl.resource_type.name}")
    return acl


def _tree(users: Users) -> dict[str, Any]:
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
