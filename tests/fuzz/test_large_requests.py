"""The fuzzer's inputs are small. Large requests keep the same pace for each byte: nothing grows with its square."""

from __future__ import annotations

import random
from typing import Any

import pytest

from holdfast.wire.fields import Spec, specs_of
from holdfast.wire.message import Api, encode
from tests.fuzz import plausible_messages, seeds
from tests.fuzz.coordinator_runs import GROUP_APIS, Act, Step, pack, parse
from tests.fuzz.fuzzed_broker import SETTINGS
from tests.fuzz.mutation import request_frame
from tests.fuzz.stall_and_leak_checks import Pace, run_in_pace
from tests.fuzz.targets import COORDINATOR

ROOM = int(SETTINGS["socket.request.max.bytes"]) - 1_000
TWICE = 2
PACE = Pace(seconds=0.05, seconds_per_byte=6e-6)
"""Three times what the slowest of them takes."""


def large(api: Api, version: int, field_name: str, spec: Spec) -> Any:
    """A request that is nothing but this array, each element another one, as long as there is room."""
    rng = random.Random(f"{api.name} {field_name}")
    assert spec.element is not None
    request = plausible_messages.message(api.request, version, rng)
    for name, other in specs_of(api.request):
        if other.kind == "array":
            setattr(request, name, [])
    count = ROOM // 8
    while True:
        setattr(request, field_name, [_element(number, spec.element, version) for number in range(count)])
        size = len(encode(request, version))
        if size <= ROOM:
            return request
        count = count * ROOM // size - 10


def _element(number: int, spec: Spec, version: int) -> Any:
    if spec.struct is None:
        return str(number) if spec.kind == "string" else number
    element = spec.struct()
    for name, inner in specs_of(spec.struct):
        if not inner.present(version):
            continue
        if inner.kind == "string":
            setattr(element, name, str(number))
        elif inner.kind == "array" and inner.element is not None:
            setattr(element, name, [_element(0, inner.element, version)])
    return element


ARRAYS = [
    pytest.param(api, name, spec, id=f"{api.name}-{name}")
    for api in GROUP_APIS
    for name, spec in specs_of(api.request)
    if spec.kind == "array" and spec.present(api.versions[1])
]


A_PAIR = list(parse(seeds.for_coordinator_runs()[1]))
JOINED = 4
"""After so many steps, the pair waits for its leader A-1 to sync."""

THE_LEADER = {
    "group_id": "g",
    "member_id": "A-1",
    "group_instance_id": "A",
    "generation_id": 1,
    "generation_id_or_member_epoch": 1,
    "protocol_type": "consumer",
    "protocol_name": "range",
    "session_timeout_ms": 3_000,
}


@pytest.mark.parametrize(("api", "name", "spec"), ARRAYS)
def test_a_large_request_keeps_the_pace(api: Api, name: str, spec: Spec) -> None:
    version = api.versions[1]
    request = large(api, version, name, spec)
    for field_name, field_spec in specs_of(api.request):
        if field_name in THE_LEADER and field_spec.present(version):
            setattr(request, field_name, THE_LEADER[field_name])
    frame = request_frame(request, version)
    assert len(frame) > ROOM // 2
    steps = [Step(Act.REQUEST, 2 + number, frame) for number in range(TWICE)]

    run_in_pace(COORDINATOR.run, pack([*A_PAIR[:JOINED], *steps, Step(Act.TIME, 6), *steps]), PACE)
