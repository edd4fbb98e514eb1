"""The groups that a command is about, and whether they exist."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from holdfast.cli.errors import CommandFailed

if TYPE_CHECKING:
    from holdfast.client.admin import Admin
    from holdfast.client.descriptions import GroupDescription

DEAD: Final = "Dead"
_NEWER_TYPES: Final = ("consumer", "share", "streams")


def add_group_options(parser: argparse.ArgumentParser, *, every: bool) -> None:
    """`--group`, which may be repeated, and where it makes sense `--all-groups`."""
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--group", metavar="GROUP", action="append", help="the group; may be repeated")
    if every:
        chosen.add_argument("--all-groups", action="store_true", help="every group")


def chosen_groups(options: argparse.Namespace, admin: Admin) -> list[str]:
    if options.all_groups:
        return [one.group_id for one in admin.list_groups()]
    return list(dict.fromkeys(options.group))


def describe_existing(admin: Admin, group_id: str) -> GroupDescription:
    """The group. Raises CommandFailed if it does not exist or cannot be described."""
    described = admin.describe_group(group_id)
    if described.state != DEAD:
        return described
    kinds = {one.group_id: one.group_type.lower() for one in admin.list_groups()}
    kind = kinds.get(group_id)
    if kind in _NEWER_TYPES:
        raise CommandFailed(
            f"group {group_id!r} is of type {kind} (KIP-848 and its successors); Holdfast describes classic groups"
        )
    raise CommandFailed(f"there is no group {group_id!r}")
