"""`holdfast groups remove-members`: remove static or dynamic members from a group (KIP-345)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from holdfast.cli.connection_options import add_connection_options, open_admin
from holdfast.cli.errors import CommandFailed, UsageError, print_to_stderr
from holdfast.cli.exit_codes import EXIT_FAILED, EXIT_OK
from holdfast.cli.groups.selection import describe_existing
from holdfast.cli.output import print_json, print_table
from holdfast.cli.parsing import CommaList
from holdfast.cli.parsing import add_command as add
from holdfast.cli.results import error_json

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands
    from holdfast.client.admin import Admin
    from holdfast.client.descriptions import Removal
    from holdfast.client.errors import HoldfastError

_REASON: Final = "removed by holdfast groups remove-members"


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "remove-members",
        run,
        "remove members that will not come back, in one rebalance",
        [
            "holdfast groups remove-members --bootstrap-server 127.0.0.1:9092 --group orders "
            "--instance-ids orders-3,orders-4",
            "holdfast groups remove-members --bootstrap-server 127.0.0.1:9092 --group orders "
            "--instance-prefix orders-eu- --reason 'moved to another region'",
        ],
        "A member that is still running rejoins at once. Stop it first.",
    )
    parser.add_argument("--group", "--group-id", metavar="GROUP", required=True, help="the group")
    parser.add_argument(
        "--instance-ids",
        "--group-instance-ids",
        metavar="ID,…",
        action=CommaList,
        default=[],
        help="instance ids of static members, separated by commas; may be repeated",
    )
    parser.add_argument(
        "--instance-prefix",
        metavar="PREFIX",
        help="all static members whose instance id equals PREFIX, or starts with it and a separator: app-1 "
        "matches app-1 and app-1-0, but not app-10",
    )
    parser.add_argument(
        "--member-ids", metavar="ID,…", action=CommaList, default=[], help="member ids, separated by commas"
    )
    parser.add_argument("--reason", default=_REASON, help="the reason, for the broker's log and ledger")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_connection_options(parser)


def run(options: argparse.Namespace) -> int:
    if not (options.instance_ids or options.member_ids or options.instance_prefix):
        raise UsageError("name the members: --instance-ids, --instance-prefix or --member-ids")
    with open_admin(options) as admin:
        removals = _removals(options, admin)
    if options.json:
        print_json([_identity(one) | error_json(one.error) for one in removals])
    else:
        rows = [(one.group_instance_id, one.member_id, _outcome(one.error)) for one in removals]
        print_table(("INSTANCE-ID", "CONSUMER-ID", "RESULT"), rows)
    failed = [one for one in removals if one.error is not None]
    if failed:
        print_to_stderr(options.prog, f"{len(failed)} of {len(removals)} members were not removed")
    return EXIT_FAILED if failed else EXIT_OK


def _removals(options: argparse.Namespace, admin: Admin) -> list[Removal]:
    """Raises errors of the whole group. The coordinator would only report every member as unknown."""
    from holdfast.client.errors import HoldfastError
    from holdfast.wire.error_codes import ErrorCode

    try:
        group = describe_existing(admin, options.group)
        instance_ids = list(dict.fromkeys(options.instance_ids))
        if options.instance_prefix:
            known = [one.group_instance_id for one in group.members if one.group_instance_id is not None]
            matching = [one for one in known if begins_with(one, options.instance_prefix) and one not in instance_ids]
            if not (matching or instance_ids or options.member_ids):
                raise CommandFailed(_no_match(options.group, options.instance_prefix, known))
            instance_ids += matching
        return admin.remove_members(
            options.group,
            instance_ids=instance_ids,
            member_ids=list(dict.fromkeys(options.member_ids)),
            reason=options.reason,
        )
    except HoldfastError as error:
        if error.code is not ErrorCode.GROUP_AUTHORIZATION_FAILED:
            raise
        raise CommandFailed(
            f"this user may not remove members of group {options.group!r}: it needs READ and DESCRIBE on the group "
            "(GROUP_AUTHORIZATION_FAILED)"
        ) from error


def begins_with(instance_id: str, prefix: str) -> bool:
    """Whether the prefix ends at the end of a part of the id: `app-1` is not a prefix of `app-10`."""
    left = instance_id.removeprefix(prefix)
    if left == instance_id:
        return False
    return not left or not (left[0].isalnum() and prefix[-1].isalnum())


def _no_match(group: str, prefix: str, known: list[str]) -> str:
    message = f"group {group!r} has no static member whose instance id begins with {prefix!r}"
    longer = sorted(one for one in known if one.startswith(prefix))
    if longer:
        message += f" and ends there or goes on after a separator ({longer[0]!r} does not); see --instance-ids"
    return message


def _identity(removal: Removal) -> dict[str, str | None]:
    return {"instance_id": removal.group_instance_id, "member_id": removal.member_id or None}


def _outcome(error: HoldfastError | None) -> str:
    from holdfast.wire.error_codes import ErrorCode

    if error is None:
        return "removed"
    if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
        return "not in the group (UNKNOWN_MEMBER_ID)"
    return str(error)
