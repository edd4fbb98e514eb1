"""What `holdfast gateway doctor` checks: whether each request of a client for a group reaches the gateway.

Clients send FindCoordinator to any broker in Metadata. If one address in Metadata is Kafka's own, groups are split
between Kafka and the gateway, and nobody notices.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.client.addresses import Address
from holdfast.client.cluster_client import ClusterClient
from holdfast.client.connection import Connection
from holdfast.client.coordinator_client import RETRIED_ERRORS, CoordinatorClient
from holdfast.client.errors import ConnectionFailed, HoldfastError, error_code
from holdfast.client.metadata import read_metadata
from holdfast.gateway.brokers import GatewayAddresses, is_same_address
from holdfast.gateway.kafka.errors import KafkaSetupError
from holdfast.membership import requests
from holdfast.wire.apis.add_members_to_group import ADD_MEMBERS_TO_GROUP
from holdfast.wire.apis.cancel_registration import CANCEL_REGISTRATION, CancelRegistrationRequest
from holdfast.wire.apis.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from holdfast.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from holdfast.wire.apis.find_coordinator import FIND_COORDINATOR
from holdfast.wire.apis.join_group import (
    JOIN_GROUP,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from holdfast.wire.apis.leave_group import LEAVE_GROUP
from holdfast.wire.apis.metadata import MetadataRequest
from holdfast.wire.consumer_protocol import Subscription, encode_subscription
from holdfast.wire.error_codes import ErrorCode

_ADD_PARTITIONS_TO_TXN, _END_TXN = 24, 26
"""Apache Kafka has transactions, and Holdfast's own broker does not."""
_BROKER_RESOURCE: Final = 4
_SESSION_MS: Final = 10_000
_ANSWERED: Final = frozenset({0, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_AUTHORIZATION_FAILED})
"""Answers that only Holdfast's coordinator gives to a request that Kafka does not have."""
_REFUSED: Final = frozenset({ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.GROUP_AUTHORIZATION_FAILED})


class CheckFailed(Exception):
    """What is wrong, and what to do, in one sentence."""


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    ok: bool | None
    """None if it was not checked."""
    message: str


@dataclass(slots=True)
class Checks:
    """One client's view. The group is one that does not exist."""

    gateway: ClusterClient
    kafka: ClusterClient | None
    """Goes to Kafka directly."""
    group_id: str
    timeout_s: float
    _brokers: dict[int, Address] = field(default_factory=dict)

    def run(self) -> Iterator[Finding]:
        """Each check relies on the ones before: after the first that fails, nothing more is checked."""
        checks: dict[str, Callable[[], str]] = {
            "reachable": self._reachable,
            "gateway": self._is_gateway,
            "brokers": self._every_broker,
            "coordinator": self._coordinator,
            "groups": self._groups,
        }
        if self.kafka is not None:
            checks["names"] = self._names
        has_failed = False
        for name, check in checks.items():
            if has_failed:
                yield Finding(name, None, "not checked, because of the failure above")
                continue
            try:
                yield Finding(name, True, check())
            except (CheckFailed, HoldfastError, KafkaSetupError) as failure:
                has_failed = True
                yield Finding(name, False, str(failure))
        if self.kafka is None:
            yield Finding("names", None, "not checked: give --kafka HOST:PORT of a listener that is not the gateway's")

    def _deadline(self) -> float:
        return self.gateway.clock.now() + self.timeout_s

    # -- the addresses -------------------------------------------------------------------------------------------------

    def _reachable(self) -> str:
        for address in self.gateway.settings.bootstrap:
            try:
                self.gateway.open(address, self._deadline()).close()
            except ConnectionFailed as error:
                raise CheckFailed(f"the gateway cannot be reached: {error}") from error
        return ", ".join(map(str, self.gateway.settings.bootstrap))

    def _is_gateway(self) -> str:
        for address in self.gateway.settings.bootstrap:
            with self.gateway.open(address, self._deadline()) as connection:
                kind = _kind(connection)
            if kind is not None:
                raise CheckFailed(f"{address} is {kind}, not a gateway: give the address of --advertise of the gateway")
        return "Kafka's APIs, with the groups of Holdfast"

    def _every_broker(self) -> str:
        with self.gateway.open(self.gateway.settings.bootstrap[0], self._deadline()) as connection:
            metadata = read_metadata(connection.ask(MetadataRequest([]), self._deadline()))
        self._brokers = {node_id: metadata.nodes[node_id].address for node_id in sorted(metadata.nodes)}
        if not self._brokers:
            raise CheckFailed("the gateway lists no broker: see whether it reaches Kafka, in its log")
        for node_id, address in self._brokers.items():
            self._check_address(node_id, address)
            with self._opened_broker(node_id, address) as connection:
                self._check_broker(node_id, connection)
        return ", ".join(f"{node_id} at {address}" for node_id, address in self._brokers.items())

    def _check_address(self, node_id: int, address: Address) -> None:
        for other, of_other in self._brokers.items():
            if other < node_id and is_same_address(address, of_other):
                raise CheckFailed(
                    f"brokers {other} and {node_id} both advertise {address}: each broker needs its own port of the "
                    f"gateway, and broker {node_id} has {self._expected(node_id)}"
                )

    @contextlib.contextmanager
    def _opened_broker(self, node_id: int, address: Address) -> Iterator[Connection]:
        try:
            connection = self.gateway.open(address, self._deadline())
        except HoldfastError as error:
            expected = self._expected(node_id)
            if is_same_address(address, expected):
                raise CheckFailed(f"the gateway's port of broker {node_id} cannot be reached: {error}") from error
            raise CheckFailed(
                f"broker {node_id} advertises {address}, which cannot be reached ({error}): for the listener that the "
                f"gateway connects to, set its advertised.listeners to {expected}, the gateway's address of this broker"
            ) from error
        with connection:
            yield connection

    def _check_broker(self, node_id: int, connection: Connection) -> None:
        kind = _kind(connection)
        if kind is not None:
            raise CheckFailed(
                f"clients would go around the gateway: broker {node_id} advertises {connection.address}, which is "
                f"{kind}, on the listener that the gateway connects to: set its advertised.listeners for this listener "
                f"to {self._expected(node_id)}"
            )
        # Only the broker of this id describes its configs without an error.
        resource = DescribeConfigsResource(_BROKER_RESOURCE, str(node_id), ["node.id"])
        response = connection.ask(DescribeConfigsRequest([resource]), self._deadline())
        if response.results[0].error_code == ErrorCode.INVALID_REQUEST:
            raise CheckFailed(
                f"the port of broker {node_id} at {connection.address} leads to another broker: every port of the "
                "gateway must have the same number for clients"
            )

    def _expected(self, node_id: int) -> Address:
        return GatewayAddresses(self.gateway.settings.bootstrap[0]).of(node_id)

    # -- groups --------------------------------------------------------------------------------------------------------

    def _coordinator(self) -> str:
        """Of every broker, because a client may ask any of them."""
        found: Mapping[int, Address] = {
            node_id: self._coordinator_by(address) for node_id, address in self._brokers.items()
        }
        for node_id, coordinator in found.items():
            if not any(is_same_address(coordinator, one) for one in self._brokers.values()):
                raise CheckFailed(
                    f"broker {node_id}, at {self._brokers[node_id]}, says that the coordinator is at {coordinator}, "
                    "which is not an address of the gateway: clients would go around the gateway"
                )
        return ", ".join(dict.fromkeys(map(str, found.values())))

    def _coordinator_by(self, address: Address) -> Address:
        deadline = self._deadline()
        build = requests.find_coordinator(self.group_id)
        with self.gateway.open(address, deadline) as connection:
            version = connection.version_of(FIND_COORDINATOR)
            while True:
                response = connection.ask(build(version), deadline, version)
                code, node = requests.parse_coordinator(response)
                if not code:
                    return Address(node.host, node.port)
                if code not in RETRIED_ERRORS or not self.gateway.pause_before_retry(deadline):
                    raise CheckFailed(
                        f"{address} names no coordinator of group {self.group_id!r}: {error_code(code).name}"
                    )

    def _groups(self) -> str:
        """With a request that Kafka does not have."""
        request = CancelRegistrationRequest(self.group_id, None)
        with CoordinatorClient(self.gateway, self.group_id) as asking:
            response = asking.ask(CANCEL_REGISTRATION, lambda _: request, lambda one: one.error_code, self._deadline())
        if response.error_code not in _ANSWERED:
            raise CheckFailed(f"the coordinator answers requests of groups with {error_code(response.error_code).name}")
        return "answered by Holdfast"

    # -- clients that go to Kafka directly -----------------------------------------------------------------------------

    def _names(self) -> str:
        """A group that has a member at the gateway cannot be joined at Kafka."""
        deadline = self._deadline()
        with self.gateway.coordinator(self.group_id, deadline) as connection:
            member_id = self._join_at_gateway(connection, deadline)
            try:
                address, code = self._join_at_kafka(deadline)
            finally:
                self._remove_group(connection, member_id)
        if code not in _REFUSED:
            raise CheckFailed(
                f"a client that connects to {address} can join a group that is on the gateway "
                f"({code.name}): the gateway does not hold the names of its groups in Kafka, see its log"
            )
        return f"a client that connects to {address} is refused ({code.name})"

    def _join_at_gateway(self, connection: Connection, deadline: float) -> str:
        member_id = ""
        while True:
            response = _join(connection, self.group_id, member_id, deadline)
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                member_id = response.member_id
            elif response.error_code not in RETRIED_ERRORS or not self.gateway.pause_before_retry(deadline):
                break
        if response.error_code:
            raise CheckFailed(
                f"the check cannot join group {self.group_id!r} at the gateway: {error_code(response.error_code).name}"
            )
        return response.member_id

    def _join_at_kafka(self, deadline: float) -> tuple[Address, ErrorCode]:
        """The answer of Kafka's coordinator, and its address. It may be loading the group."""
        assert self.kafka is not None
        before: Mapping[Address, ErrorCode | str] = {}
        while True:
            answers = self._asked_at_kafka(self.kafka, deadline)
            for address, answer in answers.items():
                if isinstance(answer, ErrorCode) and answer not in RETRIED_ERRORS:
                    return address, answer
            answered = [one for one in answers.values() if isinstance(one, ErrorCode)]
            if not answered or not self.kafka.pause_before_retry(deadline):
                # The last attempt may have had no time left for an answer.
                said = (
                    f"{address} answers {answer.name}" if isinstance(answer, ErrorCode) else answer
                    for address, answer in ((not answered and before) or answers).items()
                )
                raise CheckFailed(f"no address of --kafka could be asked for the group: {'; '.join(said)}")
            before = answers

    def _asked_at_kafka(self, kafka: ClusterClient, deadline: float) -> dict[Address, ErrorCode | str]:
        """The answer to a JoinGroup, or the failure, of each given address and of the coordinator that they name. On
        the listener for the gateway, they name the gateway, which is not asked."""
        answers: dict[Address, ErrorCode | str] = {}
        addresses = list(kafka.settings.bootstrap)
        for address in addresses:  # grows
            try:
                with kafka.open(address, deadline) as connection:
                    code = error_code(_join(connection, self.group_id, "", deadline).error_code)
                    coordinator = self._named_by(connection, deadline) if code == ErrorCode.NOT_COORDINATOR else None
            except HoldfastError as error:
                answers[address] = str(error)
                continue
            answers[address] = code
            if coordinator is not None and coordinator not in addresses:
                addresses.append(coordinator)
        return answers

    def _named_by(self, connection: Connection, deadline: float) -> Address | None:
        version = connection.version_of(FIND_COORDINATOR)
        request = requests.find_coordinator(self.group_id)(version)
        code, node = requests.parse_coordinator(connection.ask(request, deadline, version))
        address = Address(node.host, node.port)
        if code or any(is_same_address(address, one) for one in self._brokers.values()):
            return None
        return address

    def _remove_group(self, connection: Connection, member_id: str) -> None:
        """The result is known by now: a failure here must not hide it."""
        leave = requests.leave_group(self.group_id, member_id, None, "the check is over")
        deadline = self._deadline()
        with contextlib.suppress(HoldfastError):
            version = connection.version_of(LEAVE_GROUP)
            connection.ask(leave(version), deadline, version)
            connection.ask(DeleteGroupsRequest([self.group_id]), deadline, connection.version_of(DELETE_GROUPS))


def _kind(connection: Connection) -> str | None:
    """What kind of server this is, if it is not a gateway."""
    if ADD_MEMBERS_TO_GROUP.key not in connection.versions:
        return "an Apache Kafka broker"
    if not {_ADD_PARTITIONS_TO_TXN, _END_TXN} <= connection.versions.keys():
        return "a Holdfast broker"
    return None


def _join(connection: Connection, group_id: str, member_id: str, deadline: float) -> JoinGroupResponse:
    protocols = [JoinGroupRequestProtocol("range", encode_subscription(Subscription([])))]
    request = JoinGroupRequest(group_id, _SESSION_MS, _SESSION_MS, member_id, None, "consumer", protocols)
    response: JoinGroupResponse = connection.ask(request, deadline, connection.version_of(JOIN_GROUP))
    return response
