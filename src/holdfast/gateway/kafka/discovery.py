"""The first contact with the cluster: what is behind `--kafka`, and in which mode the gateway works with it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from holdfast.client.addresses import Address
from holdfast.client.errors import error_code
from holdfast.gateway.brokers import BootstrapAddress, GatewayAddresses, detect_transparent_mode, is_same_address
from holdfast.gateway.kafka.connection import connect
from holdfast.gateway.kafka.errors import KafkaRefused, KafkaSetupError, KafkaUnreachable
from holdfast.gateway.kafka.settings import KafkaClientSettings
from holdfast.gateway.kafka.sockets import resolved_hosts
from holdfast.wire.apis.metadata import MetadataRequest, MetadataResponse


@dataclass(frozen=True, slots=True)
class Discovery:
    cluster_id: str
    listed: Mapping[int, Address]
    """The brokers with their advertised addresses."""
    is_transparent: bool


def brokers_request() -> MetadataRequest:
    """For the brokers alone, without topics."""
    return MetadataRequest([], allow_auto_topic_creation=False)


def listed_brokers(response: MetadataResponse) -> dict[int, Address]:
    """The brokers with their advertised addresses. Raises KafkaUnreachable if there are none."""
    if response.error_code:
        code = error_code(response.error_code)
        raise KafkaUnreachable(f"Metadata is answered with {code.name}")
    if not response.brokers:  # a broker that is just starting lists none, not even itself
        raise KafkaUnreachable("Metadata lists no broker")
    return {one.node_id: Address(one.host, one.port) for one in response.brokers}


async def discover(
    bootstrap: Sequence[BootstrapAddress],
    settings: KafkaClientSettings,
    gateway: GatewayAddresses,
    *,
    timeout_s: float,
) -> Discovery:
    """Asks all addresses of `--kafka` at once. At least one must answer.

    Raises KafkaUnreachable if none does, and KafkaSetupError if the answers do not fit together.
    """
    addresses = list(dict.fromkeys(one.address for one in bootstrap))
    outcomes = await asyncio.gather(
        *(_metadata_at(address, settings, timeout_s) for address in addresses), return_exceptions=True
    )
    answers: dict[Address, MetadataResponse] = {}
    failures = []
    for address, outcome in zip(addresses, outcomes, strict=True):
        if isinstance(outcome, KafkaUnreachable):
            failures.append(str(outcome))
        elif isinstance(outcome, KafkaRefused):
            raise KafkaSetupError(f"Kafka does not accept the gateway: {outcome}") from outcome
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            answers[address] = outcome
    if not answers:
        raise KafkaUnreachable(f"no address of --kafka can be used: {'; '.join(failures)}")
    cluster_id = _one_cluster(answers)
    listed = _one_listener(answers)
    is_transparent = detect_transparent_mode(listed, gateway)
    if not is_transparent:
        await _refuse_other_names_of_the_gateway(listed, gateway)
    return Discovery(cluster_id, listed, is_transparent)


async def _metadata_at(address: Address, settings: KafkaClientSettings, timeout_s: float) -> MetadataResponse:
    deadline = asyncio.get_running_loop().time() + timeout_s
    connection = await connect(address, settings, timeout_s=timeout_s)
    try:
        left_s = max(deadline - asyncio.get_running_loop().time(), 0)
        response: MetadataResponse = await connection.ask(brokers_request(), timeout_s=left_s)
    finally:
        connection.close()
    try:
        listed_brokers(response)
    except KafkaUnreachable as failure:
        raise KafkaUnreachable(f"{address}: {failure}") from failure
    return response


def _one_cluster(answers: Mapping[Address, MetadataResponse]) -> str:
    ids = {address: response.cluster_id for address, response in answers.items()}
    for (one, one_id), (other, other_id) in pairwise(ids.items()):
        if one_id != other_id:
            raise KafkaSetupError(
                f"--kafka has brokers of two clusters: {one} is of cluster {one_id}, and {other} of cluster "
                f"{other_id}: give the addresses of one cluster"
            )
    found = next(iter(ids.values()))
    if found is None:
        raise KafkaSetupError(f"the broker at {next(iter(ids))} tells no cluster id: the gateway needs a newer Kafka")
    return found


def _one_listener(answers: Mapping[Address, MetadataResponse]) -> dict[int, Address]:
    """All brokers that any answer lists. A broker that has just started may not list all of them yet."""
    listed: dict[int, tuple[Address, Address]] = {}
    for asked, response in answers.items():
        for node_id, advertised in listed_brokers(response).items():
            before, said_by = listed.setdefault(node_id, (advertised, asked))
            if not is_same_address(before, advertised):
                raise KafkaSetupError(
                    f"broker {node_id} advertises {before} at {said_by}, but {advertised} at {asked}, so these "
                    "addresses of --kafka are of different listeners: give the addresses of one listener"
                )
    return {node_id: advertised for node_id, (advertised, _) in listed.items()}


async def _refuse_other_names_of_the_gateway(listed: Mapping[int, Address], gateway: GatewayAddresses) -> None:
    """A broker that advertises the gateway by another name would make the gateway connect to itself."""
    ports = {gateway.base.port, *(gateway.of(node_id).port for node_id in listed)}
    suspects = {node_id: address for node_id, address in listed.items() if address.port in ports}
    if not suspects:
        return
    ours = await resolved_hosts(gateway.base)
    for node_id, address in suspects.items():
        if ours & await resolved_hosts(address):
            raise KafkaSetupError(
                f"broker {node_id} advertises {address}, which is an address of the gateway itself: write the host "
                f"in advertised.listeners and in --advertise in the same way ({gateway.of(node_id)}), or choose "
                "other ports for the gateway"
            )
