"""The brokers of the cluster: where the gateway reaches each of them, and where clients reach it at the gateway.

Broker N has the port BASE + 1 + N of the gateway, where BASE is the port of `--advertise`. In *transparent* mode, Kafka
itself advertises these addresses, on a listener that is meant for the gateway. Its responses then need no rewriting,
but Metadata does not have the real addresses of the brokers; `--kafka` has. In *rewriting* mode, Metadata has the real
addresses, and the gateway replaces them in responses to clients.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from holdfast.client import addresses
from holdfast.client.addresses import Address
from holdfast.client.errors import ConfigError
from holdfast.gateway.kafka.errors import KafkaSetupError, KafkaUnreachable

logger = logging.getLogger(__name__)

_HIGHEST_PORT: Final = 65_535
_HIGHEST_NODE_ID: Final = (1 << 31) - 1


# -- addresses ---------------------------------------------------------------------------------------------------------


class BootstrapAddress(NamedTuple):
    """One address of `--kafka`: `ID=HOST:PORT`, or `HOST:PORT` without an id."""

    node_id: int | None
    address: Address

    def __str__(self) -> str:
        return str(self.address) if self.node_id is None else f"{self.node_id}={self.address}"


def parse_bootstrap(text: str) -> tuple[BootstrapAddress, ...]:
    """The addresses of "1=host:port,host:port", in order and without duplicates."""
    found = [_parse(one.strip()) for one in text.split(",") if one.strip()]
    if not found:
        raise KafkaSetupError("--kafka names no broker: give HOST:PORT or ID=HOST:PORT, several separated by commas")
    addresses_by_id: dict[int, Address] = {}
    for one in found:
        if one.node_id is not None and addresses_by_id.setdefault(one.node_id, one.address) != one.address:
            raise KafkaSetupError(
                f"--kafka has two addresses for broker {one.node_id}, {addresses_by_id[one.node_id]} and "
                f"{one.address}: leave one of them out"
            )
    return tuple(dict.fromkeys(found))


def _parse(text: str) -> BootstrapAddress:
    number, equals, rest = text.rpartition("=")
    try:
        (address,) = addresses.parse_bootstrap(rest, setting="--kafka")
    except ConfigError as failure:
        raise KafkaSetupError(str(failure)) from failure
    if not equals:
        return BootstrapAddress(None, address)
    number = number.strip()
    if not (number.isascii() and number.isdigit()) or int(number) > _HIGHEST_NODE_ID:
        raise KafkaSetupError(f"--kafka has {text!r}, but {number!r} is no broker id: give ID=HOST:PORT or HOST:PORT")
    return BootstrapAddress(int(number), address)


@dataclass(frozen=True, slots=True)
class GatewayAddresses:
    """How clients reach the gateway. `base` is the bootstrap address; the brokers' ports follow it."""

    base: Address

    def of(self, node_id: int) -> Address:
        """The gateway's address of this broker. Raises KafkaSetupError if there is no such port."""
        port = self.base.port + 1 + node_id
        if node_id < 0 or port > _HIGHEST_PORT:
            raise KafkaSetupError(
                f"broker {node_id} would need port {port} of the gateway, which does not exist: "
                f"choose a lower port than {self.base.port} for --listen and --advertise"
            )
        return Address(self.base.host, port)


# -- the mode ----------------------------------------------------------------------------------------------------------


def detect_transparent_mode(listed: Mapping[int, Address], gateway: GatewayAddresses) -> bool:
    """Whether the brokers advertise the gateway's addresses, given the addresses in Kafka's Metadata.

    Raises KafkaSetupError if only some of them do, or if a broker advertises an address of the gateway that belongs to
    another broker.
    """
    expected = {node_id: gateway.of(node_id) for node_id in listed}
    ours = {gateway.base, *expected.values()}
    through, around = [], []
    for node_id in sorted(listed):
        if is_same_address(listed[node_id], expected[node_id]):
            through.append(node_id)
        elif any(is_same_address(listed[node_id], one) for one in ours):
            raise KafkaSetupError(
                f"broker {node_id} advertises {listed[node_id]}, but the gateway's address of broker {node_id} is "
                f"{expected[node_id]}: set its advertised.listeners to that on the listener for the gateway"
            )
        else:
            around.append(node_id)
    if through and around:
        first = around[0]
        raise KafkaSetupError(
            f"{_named(through)} the gateway's address on the listener of --kafka, but broker {first} advertises "
            f"{listed[first]}: set advertised.listeners of broker {first} to {expected[first]} on that listener, "
            "or give --kafka a listener on which no broker advertises the gateway"
        )
    return not around


def split_usable(
    listed: Mapping[int, Address], gateway: GatewayAddresses, *, is_transparent: bool
) -> tuple[dict[int, Address], list[str]]:
    """The brokers that can be used in this mode, and for each of the others a sentence that says why it cannot.

    Unlike at the start, one wrong broker must not end a gateway that serves the others.
    """
    usable: dict[int, Address] = {}
    complaints = []
    for node_id, address in sorted(listed.items()):
        try:
            expected = gateway.of(node_id)
        except KafkaSetupError as failure:
            complaints.append(str(failure))
            continue
        if is_same_address(address, expected) == is_transparent:
            usable[node_id] = address
        elif is_transparent:
            complaints.append(
                f"broker {node_id} advertises {address} to clients, which then go around the gateway: "
                f"set its advertised.listeners to {expected} on the listener for the gateway"
            )
        else:
            complaints.append(
                f"broker {node_id} advertises {address}, which is the gateway, but others do not: "
                "set advertised.listeners of all brokers to the gateway's addresses, and restart the gateway"
            )
    return usable, complaints


def is_same_address(one: Address, other: Address) -> bool:
    """Names of hosts are equal in either case. Nothing is looked up."""
    return one.port == other.port and one.host.lower().rstrip(".") == other.host.lower().rstrip(".")


def _named(node_ids: Sequence[int]) -> str:
    if len(node_ids) == 1:
        return f"broker {node_ids[0]} advertises"
    return f"brokers {', '.join(map(str, node_ids))} advertise"


# -- the directory -----------------------------------------------------------------------------------------------------


class BrokerDirectory:
    """The live brokers, as of the last Metadata. `KafkaCluster` keeps it up to date."""

    def __init__(self, gateway: GatewayAddresses) -> None:
        self.gateway: Final = gateway
        self.is_transparent = False
        """Decided when the cluster is first reached, and never changed afterwards."""
        self._upstream: dict[int, Address] = {}
        self._node_ids: tuple[int, ...] = ()
        self._changed: list[Callable[[], None]] = []

    @property
    def node_ids(self) -> Sequence[int]:
        """The live brokers, in order."""
        return self._node_ids

    def __contains__(self, node_id: int) -> bool:
        return node_id in self._upstream

    def upstream(self, node_id: int) -> Address:
        """Where the gateway connects to. Raises KafkaUnreachable for a broker that is not live."""
        found = self._upstream.get(node_id)
        if found is None:
            raise KafkaUnreachable(f"Kafka lists no broker {node_id} with an address that the gateway knows")
        return found

    def advertised(self, node_id: int) -> Address:
        """The gateway's own address of this broker, live or not."""
        return self.gateway.of(node_id)

    def on_changed(self, action: Callable[[], None]) -> None:
        """`action` is called after brokers were added, removed or moved."""
        self._changed.append(action)

    def update(self, upstream: Mapping[int, Address]) -> None:
        if upstream == self._upstream:
            return
        self._upstream = dict(upstream)
        self._node_ids = tuple(sorted(upstream))
        for action in self._changed:
            try:
                action()
            except Exception:  # the other actions must run, and the brokers be followed further
                logger.exception("an action after a change of the brokers failed")
