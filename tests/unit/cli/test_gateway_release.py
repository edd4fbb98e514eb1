"""`holdfast gateway release`: what it asks, and what it says."""

from __future__ import annotations

import json

import pytest

from holdfast.cli.main import main
from holdfast.wire.apis.release_group import ReleaseGroupRequest, ReleaseGroupResponse
from holdfast.wire.error_codes import ErrorCode
from tests.unit.client.scripted import ScriptedServer
from tests.unit.client.scripted_coordinator import Coordinator, bootstrap_of


def released(capsys: pytest.CaptureFixture[str], coordinator: Coordinator, *options: str) -> tuple[int, str, str]:
    with ScriptedServer(coordinator) as server:
        code = main(["gateway", "release", "orders", "--bootstrap-server", bootstrap_of(server), *options])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_it_says_how_many_offsets_kafka_has_now(capsys: pytest.CaptureFixture[str]) -> None:
    coordinator = Coordinator(ReleaseGroupResponse(partition_count=3))
    assert released(capsys, coordinator) == (0, "orders: released, with the offsets of 3 partitions\n", "")
    assert coordinator.messages() == [ReleaseGroupRequest("orders")]
    one = Coordinator(ReleaseGroupResponse(partition_count=1))
    assert released(capsys, one)[1] == "orders: released, with the offsets of 1 partition\n"
    code, out, _ = released(capsys, coordinator, "--json")
    assert (code, json.loads(out)) == (0, {"group_id": "orders", "partitions": 3})


@pytest.mark.parametrize(
    ("code", "message", "said"),
    [
        (ErrorCode.NON_EMPTY_GROUP, None, "NON_EMPTY_GROUP: it has members: stop them, or remove them, first"),
        (ErrorCode.GROUP_ID_NOT_FOUND, None, "GROUP_ID_NOT_FOUND: the gateway has no such group"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, None, "UNKNOWN_SERVER_ERROR: see the log of the gateway"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "Kafka has gone.", "UNKNOWN_SERVER_ERROR: Kafka has gone."),
    ],
)
def test_a_refusal_is_one_sentence(
    capsys: pytest.CaptureFixture[str], code: ErrorCode, message: str | None, said: str
) -> None:
    refusal = ReleaseGroupResponse(error_code=code, error_message=message)
    assert released(capsys, Coordinator(refusal)) == (1, "", f"holdfast gateway release: group 'orders': {said}\n")


def test_a_user_without_the_permission_learns_which_one(capsys: pytest.CaptureFixture[str]) -> None:
    refusal = ReleaseGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    _, _, said = released(capsys, Coordinator(refusal))
    assert said.endswith("this user lacks the permission: it needs DELETE on the group\n")


def test_it_waits_for_a_coordinator_that_is_loading(capsys: pytest.CaptureFixture[str]) -> None:
    loading = ReleaseGroupResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    code, _, _ = released(capsys, Coordinator(loading, ReleaseGroupResponse(partition_count=2)))
    assert code == 0


def test_a_broker_is_not_a_gateway(capsys: pytest.CaptureFixture[str]) -> None:
    assert released(capsys, Coordinator(holdfast=False)) == (
        1,
        "",
        "holdfast gateway release: group 'orders' cannot be released: its coordinator is a broker, not a Holdfast "
        "gateway\n",
    )
