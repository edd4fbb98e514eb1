"""`holdfast gateway doctor` on set-ups that are right, and on every one that is wrong in its own way."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from holdfast.cli.main import main
from holdfast.client.addresses import Address
from holdfast.wire.apis.api_versions import ApiVersion, ApiVersionsResponse
from holdfast.wire.apis.cancel_registration import CancelRegistrationResponse
from holdfast.wire.apis.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from holdfast.wire.apis.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from holdfast.wire.apis.find_coordinator import FindCoordinatorResponse, FoundCoordinator
from holdfast.wire.apis.join_group import JoinGroupResponse
from holdfast.wire.apis.leave_group import LeaveGroupResponse
from holdfast.wire.apis.metadata import MetadataResponse, MetadataResponseBroker
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.message import APIS
from tests.support.held_ports import held_port
from tests.unit.client.scripted import Peer, Request, ScriptedServer, unused_address

FIRST_PRIVATE_KEY = 10_000
OF_TRANSACTIONS = (24, 26)
NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
REFUSED = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@dataclass
class Answers:
    """What one port says. A gateway has the APIs of both, Kafka and a Holdfast broker lack some."""

    is_kafka: bool = False
    is_holdfast: bool = False
    node_id: int | None = None
    brokers: dict[int, Address] = field(default_factory=dict)
    coordinator: Address | None = None
    group_code: int = ErrorCode.GROUP_ID_NOT_FOUND
    join_codes: list[int] = field(default_factory=lambda: [0])
    asked: list[Request] = field(default_factory=list)

    def __call__(self, peer: Peer) -> None:
        while True:
            request = peer.request()
            self.asked.append(request)
            peer.answer(request, getattr(self, f"_{request.api.name}")(request))

    def names(self) -> list[str]:
        return [request.api.name for request in self.asked]

    def _ApiVersions(self, _request: Request) -> ApiVersionsResponse:
        known = {key: api.versions for key, api in APIS.items() if not self.is_kafka or key < FIRST_PRIVATE_KEY}
        transactions = {} if self.is_holdfast else dict.fromkeys(OF_TRANSACTIONS, (0, 3))
        return ApiVersionsResponse(api_keys=[ApiVersion(key, *of) for key, of in (known | transactions).items()])

    def _Metadata(self, _request: Request) -> MetadataResponse:
        return MetadataResponse(brokers=[MetadataResponseBroker(one, *of) for one, of in self.brokers.items()])

    def _DescribeConfigs(self, request: Request) -> DescribeConfigsResponse:
        (resource,) = request.message.resources
        code = 0 if resource.resource_name == str(self.node_id) else ErrorCode.INVALID_REQUEST
        return DescribeConfigsResponse(results=[DescribeConfigsResult(code, None, 4, resource.resource_name)])

    def _FindCoordinator(self, request: Request) -> FindCoordinatorResponse:
        (group,) = request.message.coordinator_keys
        if self.coordinator is None:
            found = FoundCoordinator(group, -1, "", -1, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        else:
            found = FoundCoordinator(group, 1, *self.coordinator)
        return FindCoordinatorResponse(coordinators=[found])

    def _CancelRegistration(self, _request: Request) -> CancelRegistrationResponse:
        return CancelRegistrationResponse(error_code=self.group_code)

    def _JoinGroup(self, _request: Request) -> JoinGroupResponse:
        code = self.join_codes.pop(0) if len(self.join_codes) > 1 else self.join_codes[0]
        return JoinGroupResponse(error_code=code, member_id="m-1", protocol_name="range")

    def _LeaveGroup(self, _request: Request) -> LeaveGroupResponse:
        return LeaveGroupResponse()

    def _DeleteGroups(self, request: Request) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(results=[DeletableGroupResult(request.message.groups_names[0], 0)])


class Setup:
    """A gateway with the ports of two brokers, and one of Kafka's own."""

    def __init__(self, servers: ExitStack) -> None:
        self.ports = {node_id: Answers(node_id=node_id) for node_id in (1, 2)}
        self.bootstrap = Answers()
        self.kafka = Answers(is_kafka=True, node_id=2, join_codes=[REFUSED])
        self.addresses = {
            node_id: servers.enter_context(ScriptedServer(port)).address for node_id, port in self.ports.items()
        }
        self.bootstrap_address = servers.enter_context(ScriptedServer(self.bootstrap)).address
        self.kafka_address = servers.enter_context(ScriptedServer(self.kafka)).address
        self.brokers = dict(self.addresses)
        for port in (self.bootstrap, *self.ports.values()):
            port.brokers, port.coordinator = self.brokers, self.addresses[1]
        self.kafka.brokers, self.kafka.coordinator = {2: self.kafka_address}, self.kafka_address

    def expected(self, node_id: int) -> str:
        host, port = self.bootstrap_address
        return f"{host}:{port + 1 + node_id}"


@pytest.fixture
def setup() -> Iterator[Setup]:
    with ExitStack() as servers:
        yield Setup(servers)


Doctor = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture
def doctor(setup: Setup, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """The exit code, the result of each check, and what is wrong."""

    def run(*options: str) -> tuple[int, dict[str, Any], str]:
        command = ["gateway", "doctor", "--bootstrap-server", str(setup.bootstrap_address), "--timeout", "5", *options]
        code = main(command)
        said = capsys.readouterr()
        lines = [line.split(maxsplit=2) for line in said.out.splitlines()[1:]]
        wrong = said.err.removeprefix("holdfast gateway doctor: ").rstrip("\n")
        assert "\n" not in wrong
        return code, {name: result for name, result, *_ in lines}, wrong

    return run


# -- right -------------------------------------------------------------------------------------------------------------


def test_a_right_set_up_has_a_line_for_each_check(setup: Setup, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["gateway", "doctor", "--bootstrap-server", str(setup.bootstrap_address)])
    said = capsys.readouterr()
    assert (code, said.err) == (0, "")
    assert [line.split(maxsplit=2) for line in said.out.splitlines()] == [
        ["CHECK", "RESULT", "DETAIL"],
        ["reachable", "ok", str(setup.bootstrap_address)],
        ["gateway", "ok", "Kafka's APIs, with the groups of Holdfast"],
        ["brokers", "ok", f"1 at {setup.addresses[1]}, 2 at {setup.addresses[2]}"],
        ["coordinator", "ok", str(setup.addresses[1])],
        ["groups", "ok", "answered by Holdfast"],
        ["names", "-", "not checked: give --kafka HOST:PORT of a listener that is not the gateway's"],
    ]
    assert "JoinGroup" not in setup.ports[1].names()


def test_a_group_of_the_gateway_is_refused_by_kafka(setup: Setup, doctor: Doctor) -> None:
    setup.ports[1].join_codes = [ErrorCode.MEMBER_ID_REQUIRED, 0]
    code, results, wrong = doctor("--kafka", str(setup.kafka_address), "--group-prefix", "checks")
    assert (code, wrong, set(results.values())) == (0, "", {"ok"})
    asked = [request for request in setup.ports[1].asked if request.api.name in ("JoinGroup", "LeaveGroup")]
    assert [request.message.group_id.startswith("checks-") for request in asked] == [True] * 3
    assert [request.message.member_id for request in asked[:2]] == ["", "m-1"]
    assert setup.ports[1].names()[-2:] == ["LeaveGroup", "DeleteGroups"]
    [direct] = [request for request in setup.kafka.asked if request.api.name == "JoinGroup"]
    assert direct.message.group_id == asked[0].message.group_id


def test_the_option_for_kafka_may_come_before_the_command(setup: Setup, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(
        ["gateway", "--kafka", str(setup.kafka_address), "doctor", "--bootstrap-server", str(setup.bootstrap_address)]
    )
    assert (code, capsys.readouterr().err) == (0, "")
    assert "JoinGroup" in setup.kafka.names()


def test_on_the_listener_for_the_gateway_the_given_address_is_asked(setup: Setup, doctor: Doctor) -> None:
    """Kafka names the gateway there, which would not refuse."""
    with ScriptedServer(other := Answers(is_kafka=True, join_codes=[NOT_COORDINATOR])) as server:
        other.coordinator = setup.addresses[1]
        code, results, wrong = doctor("--kafka", f"1={server.address},2={setup.kafka_address}")
    assert (code, wrong, results["names"]) == (0, "", "ok")
    assert setup.ports[1].names().count("JoinGroup") == 1


def test_on_another_listener_the_coordinator_is_found(setup: Setup, doctor: Doctor) -> None:
    with ScriptedServer(other := Answers(is_kafka=True, join_codes=[NOT_COORDINATOR])) as server:
        other.coordinator = setup.kafka_address
        code, _, wrong = doctor("--kafka", str(server.address))
    assert (code, wrong) == (0, "")
    assert "JoinGroup" in setup.kafka.names()


def test_coordinators_that_are_loading_are_asked_again(setup: Setup, doctor: Doctor) -> None:
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    setup.ports[1].join_codes = [loading, ErrorCode.MEMBER_ID_REQUIRED, loading, 0]
    setup.kafka.join_codes = [NOT_COORDINATOR, loading, REFUSED]
    code, results, wrong = doctor("--kafka", str(setup.kafka_address))
    assert (code, wrong, results["names"]) == (0, "", "ok")


def test_an_acl_that_denies_groups_is_as_good_as_a_held_name(setup: Setup, doctor: Doctor) -> None:
    setup.kafka.join_codes = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    assert doctor("--kafka", str(setup.kafka_address))[0] == 0


def test_json_has_every_check(setup: Setup, capsys: pytest.CaptureFixture[str]) -> None:
    setup.ports[2].is_kafka = True
    code = main(["gateway", "doctor", "--bootstrap-server", str(setup.bootstrap_address), "--json"])
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert (code, said.err) == (1, "")
    assert [(one["check"], one["ok"]) for one in found] == [
        ("reachable", True),
        ("gateway", True),
        ("brokers", False),
        ("coordinator", None),
        ("groups", None),
        ("names", None),
    ]
    assert found[2]["message"].startswith("clients would go around the gateway")


# -- wrong -------------------------------------------------------------------------------------------------------------


def test_a_gateway_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = unused_address()
    assert main(["gateway", "doctor", "--bootstrap-server", str(nowhere), "--timeout", "1"]) == 1
    assert f"the gateway cannot be reached: {nowhere}" in capsys.readouterr().err


@pytest.mark.parametrize(("kind", "said"), [("is_kafka", "an Apache Kafka broker"), ("is_holdfast", "a Holdfast")])
def test_a_broker_instead_of_a_gateway(setup: Setup, doctor: Doctor, kind: str, said: str) -> None:
    setattr(setup.bootstrap, kind, True)
    code, results, wrong = doctor()
    assert (code, results["gateway"], results["brokers"]) == (1, "failed", "-")
    assert wrong.startswith(f"{setup.bootstrap_address} is {said}")
    assert wrong.endswith("not a gateway: give the address of --advertise of the gateway")


def test_a_broker_that_advertises_itself(setup: Setup, doctor: Doctor) -> None:
    setup.brokers[2] = setup.kafka_address
    code, results, wrong = doctor()
    assert (code, results["brokers"]) == (1, "failed")
    assert wrong == (
        f"clients would go around the gateway: broker 2 advertises {setup.kafka_address}, which is an Apache Kafka "
        "broker, on the listener that the gateway connects to: set its advertised.listeners for this listener to "
        f"{setup.expected(2)}"
    )


def test_a_broker_whose_address_cannot_be_reached(setup: Setup, doctor: Doctor) -> None:
    setup.brokers[2] = unused_address()
    code, _, wrong = doctor()
    assert code == 1
    assert wrong.startswith(f"broker 2 advertises {setup.brokers[2]}, which cannot be reached (")
    assert wrong.endswith(f"set its advertised.listeners to {setup.expected(2)}, the gateway's address of this broker")


def test_a_port_of_the_gateway_that_cannot_be_reached(setup: Setup, doctor: Doctor) -> None:
    host, port = setup.bootstrap_address
    with closed_port_from(port + 4) as held:
        node_id = held.getsockname()[1] - port - 1
        setup.brokers[node_id] = Address(host, port + 1 + node_id)
        code, _, wrong = doctor()
    assert code == 1
    assert wrong.startswith(f"the gateway's port of broker {node_id} cannot be reached: {setup.expected(node_id)}: ")


def closed_port_from(port: int) -> socket.socket:
    """The first port from this one on where nobody listens, and nobody will."""
    while True:
        with suppress(OSError):
            return held_port(port)
        port += 1


def test_two_brokers_at_one_address(setup: Setup, doctor: Doctor) -> None:
    setup.brokers[2] = setup.addresses[1]
    code, _, wrong = doctor()
    assert code == 1
    assert wrong.startswith(f"brokers 1 and 2 both advertise {setup.addresses[1]}: ")
    assert wrong.endswith(f"broker 2 has {setup.expected(2)}")


def test_a_port_that_leads_to_another_broker(setup: Setup, doctor: Doctor) -> None:
    setup.ports[2].node_id = 1
    code, _, wrong = doctor()
    assert code == 1
    assert wrong.startswith(f"the port of broker 2 at {setup.addresses[2]} leads to another broker")


def test_no_brokers(setup: Setup, doctor: Doctor) -> None:
    setup.brokers.clear()
    assert doctor()[2] == "the gateway lists no broker: see whether it reaches Kafka, in its log"


def test_a_coordinator_that_is_not_the_gateway(setup: Setup, doctor: Doctor) -> None:
    """One broker is enough: a client may ask any of them."""
    setup.ports[2].coordinator = setup.kafka_address
    code, results, wrong = doctor()
    assert (code, results["coordinator"], results["groups"]) == (1, "failed", "-")
    assert wrong == (
        f"broker 2, at {setup.addresses[2]}, says that the coordinator is at {setup.kafka_address}, which is not an "
        "address of the gateway: clients would go around the gateway"
    )


def test_a_user_who_may_not_use_the_group(setup: Setup, doctor: Doctor) -> None:
    setup.ports[1].coordinator = None
    _, results, wrong = doctor()
    assert results["coordinator"] == "failed"
    assert wrong.endswith("': GROUP_AUTHORIZATION_FAILED")


def test_groups_that_are_answered_with_an_error(setup: Setup, doctor: Doctor) -> None:
    setup.ports[1].group_code = ErrorCode.UNKNOWN_SERVER_ERROR
    _, results, wrong = doctor()
    assert (results["groups"], wrong) == (
        "failed",
        "the coordinator answers requests of groups with UNKNOWN_SERVER_ERROR",
    )


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED])
def test_a_name_that_the_gateway_does_not_hold(setup: Setup, doctor: Doctor, code: ErrorCode) -> None:
    setup.kafka.join_codes = [code]
    exit_code, results, wrong = doctor("--kafka", str(setup.kafka_address))
    assert (exit_code, results["names"]) == (1, "failed")
    assert wrong == (
        f"a client that connects to {setup.kafka_address} can join a group that is on the gateway ({code.name}): "
        "the gateway does not hold the names of its groups in Kafka, see its log"
    )
    assert setup.ports[1].names()[-2:] == ["LeaveGroup", "DeleteGroups"]


def test_kafka_that_cannot_be_asked(setup: Setup, doctor: Doctor) -> None:
    nowhere = unused_address()
    _, results, wrong = doctor("--kafka", str(nowhere))
    assert results["names"] == "failed"
    assert wrong.startswith(f"no address of --kafka could be asked for the group: {nowhere}")
    setup.kafka.join_codes = [NOT_COORDINATOR]
    wrong = doctor("--kafka", str(setup.kafka_address))[2]
    assert wrong.endswith(f"{setup.kafka_address} answers NOT_COORDINATOR")
