"""`holdfast gateway doctor`: checks from a client's side whether all groups reach the gateway."""

from __future__ import annotations

import argparse
import secrets
from typing import TYPE_CHECKING, Final

from holdfast.cli.connection_options import CLIENT_ID, add_connection_options, client_settings
from holdfast.cli.errors import UsageError, print_to_stderr
from holdfast.cli.exit_codes import EXIT_FAILED, EXIT_OK
from holdfast.cli.gateway.kafka_options import add_kafka_options, kafka_properties
from holdfast.cli.output import print_json, print_table
from holdfast.cli.parsing import add_command as add

if TYPE_CHECKING:
    from holdfast.cli.gateway.checks import Finding
    from holdfast.cli.parsing import Commands
    from holdfast.client.settings import NetworkSettings

_GROUP_PREFIX: Final = "holdfast-doctor"
_RESULTS: Final = {True: "ok", False: "failed", None: "-"}
_DETAILS: Final = """\
Run it where the clients run, with the settings of a client. The checks, in this order:

  reachable    the bootstrap address of the gateway can be reached
  gateway      it is a gateway, not a broker
  brokers      each broker that clients find in Metadata is a port of the gateway and leads to this broker
  coordinator  each of them names an address of the gateway as the coordinator of a group
  groups       Holdfast answers the requests for groups there
  names        with --kafka: Kafka itself refuses clients that join a group of the gateway. This check makes a group,
               whose name begins with --group-prefix, and deletes it"""


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "doctor",
        run,
        "check from a client's side whether all groups reach the gateway",
        [
            "holdfast gateway doctor --bootstrap-server 127.0.0.1:9092",
            "holdfast gateway doctor --bootstrap-server 127.0.0.1:9092 --kafka broker1:9092,broker2:9092 --json",
        ],
        _DETAILS,
    )
    parser.add_argument(
        "--group-prefix",
        metavar="NAME",
        default=_GROUP_PREFIX,
        help=f"beginning of the name of the group for the checks (default: {_GROUP_PREFIX})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_connection_options(parser)
    add_kafka_options(
        parser, "a listener of the brokers that clients could use to go around the gateway", of_subcommand=True
    )


def run(options: argparse.Namespace) -> int:
    from contextlib import ExitStack

    from holdfast.cli.gateway.checks import Checks
    from holdfast.client.cluster_client import ClusterClient
    from holdfast.client.config import read_config
    from holdfast.client.runtime import SYSTEM
    from holdfast.client.settings import NAMES, NetworkSettings

    names = NAMES | {"default.api.timeout.ms"}
    gateway = NetworkSettings.from_config(read_config(client_settings(options), {}, names))
    kafka = _kafka_settings(options)
    group_id = f"{options.group_prefix}-{secrets.token_hex(4)}"
    with ExitStack() as stack:
        through = stack.enter_context(ClusterClient(gateway, runtime=SYSTEM))
        directly = None if kafka is None else stack.enter_context(ClusterClient(kafka, runtime=SYSTEM))
        findings = list(Checks(through, directly, group_id, options.timeout).run())
    return _report(options, findings)


def _kafka_settings(options: argparse.Namespace) -> NetworkSettings | None:
    from holdfast.client.settings import NetworkSettings
    from holdfast.gateway.brokers import parse_bootstrap
    from holdfast.gateway.kafka.errors import KafkaSetupError

    properties = kafka_properties(options)
    servers = options.kafka or properties.get("bootstrap.servers")
    if not servers:
        return None
    try:
        addresses = ",".join(str(one.address) for one in parse_bootstrap(servers))
    except KafkaSetupError as error:
        raise UsageError(error) from error
    return NetworkSettings.from_config({"client.id": CLIENT_ID} | properties | {"bootstrap.servers": addresses})


def _report(options: argparse.Namespace, findings: list[Finding]) -> int:
    failed = [one for one in findings if one.ok is False]
    if options.json:
        print_json([{"check": one.check, "ok": one.ok, "message": one.message} for one in findings])
        return EXIT_FAILED if failed else EXIT_OK
    rows = [(one.check, _RESULTS[one.ok], "" if one.ok is False else one.message) for one in findings]
    print_table(("CHECK", "RESULT", "DETAIL"), rows)
    for one in failed:
        print_to_stderr(options.prog, one.message)
    return EXIT_FAILED if failed else EXIT_OK
