"""`holdfast gateway` without a subcommand: run a gateway until SIGTERM, SIGINT or SIGHUP."""

from __future__ import annotations

import argparse
import gc
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.cli.errors import UsageError, print_to_stderr
from holdfast.cli.exit_codes import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from holdfast.cli.gateway.kafka_options import add_kafka_options, kafka_properties
from holdfast.cli.server_process import (
    add_logging_options,
    displayed_address,
    logging_sets,
    print_ready,
    run_event_loop,
    stop_on_signals,
    tuned_garbage_collector,
)

if TYPE_CHECKING:
    import asyncio

    from holdfast.broker.config.broker import BrokerConfig
    from holdfast.broker.config.listeners import Listener
    from holdfast.cli.parsing import Commands
    from holdfast.gateway.config import GatewayConfig
    from holdfast.gateway.server import Gateway

logger = logging.getLogger(__name__)

_PROG: Final = "holdfast gateway"
_LISTEN: Final = "127.0.0.1:9092"
_OPTION_OF: Final = {"listeners": "--listen", "advertised.listeners": "--advertise"}
"""Configs that have an option of their own, because both addresses must be known to check one."""

_DESCRIPTION: Final = """\
Run Holdfast's groups in front of an existing Apache Kafka cluster. Clients connect to the gateway. It answers the
requests of consumer groups itself, keeps their state in the topic __holdfast_groups, and forwards all other requests
to the brokers. Broker N has its own port at the gateway, the port of --listen + 1 + N.

When the gateway is ready, its first line on stdout is `holdfast gateway listening on HOST:PORT`; everything else goes
to stderr. SIGTERM, SIGINT or SIGHUP stop it cleanly.
"""
_EPILOG: Final = """\
--kafka names a listener of the brokers that advertises the addresses of the gateway: broker N advertises the host of
--advertise and its port + 1 + N. If the brokers cannot be configured like this, name any listener; the gateway then
replaces the addresses in Kafka's responses. `holdfast gateway doctor` checks the addresses from a client's side.

Configs of --set have the names of Apache Kafka's broker configs, e.g. group.max.session.timeout.ms. They apply to
groups and to the listeners of the gateway. Put passwords into the file of --kafka-config, because other users of the
machine can see the command line.

examples:
  holdfast gateway --kafka broker1:9095,broker2:9095,broker3:9095 --listen 0.0.0.0:9092 --advertise gw1.example:9092
  holdfast gateway --kafka 1=broker1:9095 --kafka-config to-kafka.properties --listen SSL://0.0.0.0:9092 \\
    --advertise gw1.example:9092 --set ssl.certificate.location=gw.pem --set ssl.key.location=gw.key
  holdfast gateway doctor --bootstrap-server gw1.example:9092
"""


def add_command(commands: Commands) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        "gateway",
        help="run Holdfast's groups in front of an Apache Kafka cluster",
        usage=f"{_PROG} --kafka [ID=]HOST:PORT,… [OPTION …]\n       {_PROG} COMMAND …",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_kafka_options(parser, "a listener of the brokers: an address for each broker, separated by commas")
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=_listener,
        default=_LISTEN,
        help=f"bootstrap address for clients; SSL://HOST:PORT with TLS (default: {_LISTEN})",
    )
    parser.add_argument(
        "--advertise",
        metavar="HOST:PORT",
        type=_address,
        help="the same address as clients reach it (default: --listen)",
    )
    parser.add_argument("--config", metavar="FILE.toml", type=Path, help="a TOML file with configs")
    parser.add_argument(
        "--set", metavar="NAME=VALUE", dest="sets", action="append", default=[], help="a config; may be repeated"
    )
    parser.add_argument(
        "--users-file",
        metavar="FILE",
        type=Path,
        help="a file with users and their permissions on groups (default: Kafka's ACLs decide)",
    )
    parser.add_argument(
        "--create-state",
        action="store_true",
        help="create the topics with the state of the groups if they are missing, even if a gateway has run on this "
        "cluster before",
    )
    add_logging_options(parser)
    parser.set_defaults(run=run)
    return parser


# -- addresses ---------------------------------------------------------------------------------------------------------


def _listener(text: str) -> Listener:
    listener = _parsed(text)
    if listener.protocol.startswith("SASL"):
        raise argparse.ArgumentTypeError(
            f"{text!r} asks for SASL, which the gateway passes on to Kafka: "
            f"give {'SSL://' if listener.is_encrypted else ''}HOST:PORT"
        )
    if not listener.port:
        raise argparse.ArgumentTypeError(f"{text!r} has port 0, but the ports of the brokers follow this one")
    return listener


def _address(text: str) -> Listener:
    if "://" in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT: clients get it without a protocol")
    address = _parsed(text)
    if address.is_wildcard or not address.port:
        raise argparse.ArgumentTypeError(f"{text!r} is no address that a client can connect to")
    return address


def _parsed(text: str) -> Listener:
    from holdfast.broker.config.listeners import client_listeners
    from holdfast.broker.config.schema import ConfigError

    try:
        (listener,) = client_listeners("listeners", {"listeners": text})
    except (ConfigError, ValueError):
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT (an IPv6 address in brackets)") from None
    return listener


# -- running -----------------------------------------------------------------------------------------------------------


def run(options: argparse.Namespace) -> int:
    # Only now: `holdfast --help` need not wait for the gateway to be loaded.
    from holdfast.broker.config.broker import ConfigError
    from holdfast.broker.structured_log import BufferedStartupLog
    from holdfast.gateway.server import GatewayError

    try:
        held = BufferedStartupLog()
        config = gateway_config(options)
        held.release(config.broker_config.logging_level, config.broker_config.logging_format)
        failure = run_event_loop(_serve(config))
    except (UsageError, ConfigError, GatewayError) as error:
        print_to_stderr(_PROG, error)
        return EXIT_USAGE
    if failure is not None:
        print_to_stderr(_PROG, failure)
        return EXIT_FAILED
    return EXIT_OK


def gateway_config(options: argparse.Namespace) -> GatewayConfig:
    from holdfast.gateway.config import GatewayConfig

    properties = kafka_properties(options)
    kafka = options.kafka or properties.get("bootstrap.servers")
    if not kafka:
        raise UsageError("no Kafka broker is named: give --kafka HOST:PORT, an address for each broker")
    listen: Listener = options.listen
    advertise: Listener = options.advertise or listen
    if advertise.is_wildcard:
        raise UsageError(f"no client can connect to {_displayed(listen)}: give --advertise HOST:PORT as well")
    return GatewayConfig(
        kafka=kafka,
        listen=(listen.host, listen.port),
        advertise=(advertise.host, advertise.port),
        client_properties={name: value for name, value in properties.items() if name != "bootstrap.servers"},
        broker_config=_broker_config(options, listen, advertise),
        create_state=options.create_state,
    )


def _broker_config(options: argparse.Namespace, listen: Listener, advertise: Listener) -> BrokerConfig:
    from dataclasses import replace

    from holdfast.broker.config.broker import load_config

    sets = [f"listeners={listen}", f"advertised.listeners={replace(advertise, name=listen.name)}"]
    if options.users_file is not None:
        sets.append(f"users.file={options.users_file}")
    for one in options.sets:
        name = one.partition("=")[0].strip()
        if name in _OPTION_OF:
            raise UsageError(f"{name} cannot be set with --set: give {_OPTION_OF[name]}")
    return load_config(options.config, [*sets, *options.sets, *logging_sets(options)])


def _displayed(listener: Listener) -> str:
    return displayed_address(listener.host, listener.port)


async def _serve(config: GatewayConfig) -> str | None:
    """Returns the reason if the gateway had to stop by itself."""
    from holdfast.gateway.server import Gateway

    gateway = Gateway(config)
    stopping = stop_on_signals()
    with tuned_garbage_collector():  # before the first long request, which restores the thresholds that it found
        try:
            if await _is_started(gateway, stopping):
                gc.freeze()  # modules and classes stay as long as the process, so no collection needs to visit them
                print_ready([f"{_PROG} listening on {displayed_address(*config.listen)}"])
                return await _end(gateway, stopping)
        finally:
            await gateway.stop()
    return None


async def _is_started(gateway: Gateway, stopping: asyncio.Event) -> bool:
    """False if a signal came first. A start waits for Kafka and reads the state of all groups."""
    import asyncio

    starting = asyncio.create_task(gateway.start())
    signalled = asyncio.create_task(stopping.wait())
    await asyncio.wait({starting, signalled}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        logger.info("stopping before the start was complete")
        starting.cancel()
        await asyncio.wait({starting})
        return False
    signalled.cancel()
    await starting  # raises what it raised
    return True


async def _end(gateway: Gateway, stopping: asyncio.Event) -> str | None:
    import asyncio

    failing = asyncio.create_task(gateway.failed())
    signalled = asyncio.create_task(stopping.wait())
    await asyncio.wait({failing, signalled}, return_when=asyncio.FIRST_COMPLETED)
    signalled.cancel()
    if failing.done():
        return await failing
    failing.cancel()
    logger.info("stopping")
    return None
