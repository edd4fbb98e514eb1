"""Changing inputs so that they stay inputs: a field of a message, a step of a run, and only sometimes a bare byte.

Bytes changed at random hardly ever get past a length; these mutations get behind it, and the bare ones before it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from holdfast.wire.compression import Codec, compress
from holdfast.wire.errors import WireError
from holdfast.wire.fields import specs_of
from holdfast.wire.headers import decode_request_header, decode_response, encode_request, response_header
from holdfast.wire.message import APIS, decode, encode
from tests.fuzz import coordinator_runs, plausible_messages
from tests.fuzz.coordinator_runs import Act, Step
from tests.fuzz.decoding import Kind

BareMutation = Callable[[bytes, int], bytes]
"""The fuzzer's own: (bytes, greatest size) -> bytes."""

_RESPONSE: Final = Struct(">hh")
_BATCH: Final = Struct(">qiibIhiqqqhii")
FRAME_PREFIX: Final = 4
BARE_FRACTION: Final = 0.25


# -- messages ----------------------------------------------------------------------------------------------------------


def request_frame(
    message: Any, version: int, client_id: str | None = plausible_messages.CLIENT_ID, correlation_id: int = 1
) -> bytes:
    """A frame without its length."""
    return encode_request(message, version, correlation_id, client_id)[FRAME_PREFIX:]


def made_up_request(apis: Any, rng: random.Random) -> bytes:
    api = rng.choice(apis)
    version = rng.randint(*api.versions)
    return request_frame(plausible_messages.message(api.request, version, rng), version)


def changed_request(frame: bytes, rng: random.Random) -> bytes:
    """The request with one of its fields changed; WireError if it is none."""
    key, version, correlation_id, client_id, position = decode_request_header(frame)
    api = APIS.get(key)
    if api is None:
        raise WireError("no API")
    request = decode(api.request, version, frame, position)
    if rng.random() < 0.1:
        version = rng.randint(*api.versions)
        request = plausible_messages.message(api.request, version, rng)
    else:
        change(request, version, rng)
    return request_frame(request, version, client_id, correlation_id)


def changed_response(body: bytes, rng: random.Random) -> bytes:
    key, version = _RESPONSE.unpack_from(body.ljust(_RESPONSE.size, b"\x00"))
    api = APIS.get(key)
    if api is None:
        raise WireError("no API")
    correlation_id, response = decode_response(api, version, body[_RESPONSE.size :])
    change(response, version, rng)
    return _RESPONSE.pack(key, version) + response_header(correlation_id, key, version) + encode(response, version)


def change(message: Any, version: int, rng: random.Random) -> None:
    """Another value for one field of the message, or of a struct somewhere inside it."""
    name, spec = rng.choice(specs_of(type(message)))
    inside = getattr(message, name)
    structs = inside if isinstance(inside, list) else [inside]
    nested = [one for one in structs if hasattr(one, "__dataclass_fields__")]
    if nested and rng.random() < 0.7:
        change(rng.choice(nested), version, rng)
    else:
        setattr(message, name, plausible_messages.field(name, spec, version, rng))


# -- batches -----------------------------------------------------------------------------------------------------------

_NUMBERS: Final = (0, 0, 0, 1, 1, 2, 5, -1, -2, 127, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63), 1 << 66)


def made_up_batch(rng: random.Random) -> bytes:
    """A batch whose header and records say what they like about each other."""
    count = rng.choice((1, 1, 2, 3))
    body = b"".join(_made_up_record(number, rng) for number in range(count))
    codec = rng.choice((*Codec, Codec.NONE, Codec.NONE))
    times = [rng.choice((-1, 0, 1_000, (1 << 63) - 1, -(1 << 63))) for _ in range(2)]
    attributes = codec | rng.choice((0, 0, 0, 0x08, 0x10, 0x20, 0x40))
    last = count - 1 if rng.random() < 0.9 else rng.choice((0, -1, (1 << 31) - 1))
    header = _BATCH.pack(0, 0, 0, 2, 0, attributes, last, *times, rng.choice((-1, 7)), 0, 0, count)
    return header + compress(Codec(codec), body)


def _made_up_record(number: int, rng: random.Random) -> bytes:
    def honest_or_not(value: int) -> bytes:
        return _varint(value if rng.random() < 0.8 else rng.choice(_NUMBERS))

    record = b"\x00" + _varint(rng.choice(_NUMBERS)) + honest_or_not(number)
    for part in (b"k", b"v"):
        record += honest_or_not(len(part)) + part
    headers = rng.choice((0, 0, 1))
    record += honest_or_not(headers) + headers * (honest_or_not(1) + b"h" + honest_or_not(-1))
    return honest_or_not(len(record)) + record


def _varint(number: int) -> bytes:
    raw = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while raw > 0x7F:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


# -- inputs of `decoding` ----------------------------------------------------------------------------------------------


def mutate_decoding(data: bytes, max_size: int, seed: int, bare: BareMutation) -> bytes:
    rng = random.Random(seed)
    if not data or rng.random() < BARE_FRACTION:
        return bare(data, max_size)
    kind, body = Kind(data[0] % len(Kind)), data[1:]
    try:
        if kind is Kind.REQUEST:
            body = changed_request(body, rng) if rng.random() < 0.9 else made_up_request(list(APIS.values()), rng)
        elif kind is Kind.RESPONSE:
            body = changed_response(body, rng)
        elif kind is Kind.SEALED_BATCH and rng.random() < 0.5:
            body = made_up_batch(rng)
        else:
            body = bare(body, max_size - 1)
    except WireError:
        body = bare(body, max_size - 1)
    return bytes([kind]) + body[: max_size - 1]


# -- inputs of `coordinator` -------------------------------------------------------------------------------------------


def mutate_run(data: bytes, max_size: int, seed: int, bare: BareMutation) -> bytes:
    rng = random.Random(seed)
    steps = list(coordinator_runs.parse(data))
    if rng.random() < BARE_FRACTION / 2:
        return bare(data, max_size)
    for _ in range(rng.choice((1, 1, 2, 3))):
        _change_steps(steps, rng, bare)
    return coordinator_runs.pack(steps)[:max_size]


def _change_steps(steps: list[Step], rng: random.Random, bare: BareMutation) -> None:
    at = rng.randrange(len(steps)) if steps else 0
    chance = rng.random()
    if chance < 0.3 or not steps:
        steps.insert(rng.randint(0, len(steps)), _made_up_step(rng))
    elif chance < 0.65:
        steps[at] = _changed_step(steps[at], rng, bare)
    elif chance < 0.75:
        del steps[at]
    elif chance < 0.85:
        steps.insert(rng.randint(0, len(steps)), steps[at])
    elif chance < 0.92:
        other = rng.randrange(len(steps))
        steps[at], steps[other] = steps[other], steps[at]
    else:
        # The same story once more, from here on.
        steps.extend(steps[at:][:10])


def _made_up_step(rng: random.Random) -> Step:
    act = rng.choice((Act.REQUEST,) * 6 + (Act.TIME,) * 3 + tuple(Act))
    payload = made_up_request(coordinator_runs.GROUP_APIS if rng.random() < 0.9 else coordinator_runs.SERVED, rng)
    if act is Act.REQUEST:
        return Step(act, rng.randrange(coordinator_runs.PEERS), payload)
    if act is Act.BYTES:
        framed = len(payload).to_bytes(FRAME_PREFIX) + payload
        return Step(act, rng.randrange(coordinator_runs.PEERS), (2 * framed)[: rng.randint(1, 2 * len(framed))])
    return Step(act, rng.randrange(256))


def _changed_step(step: Step, rng: random.Random, bare: BareMutation) -> Step:
    if step.act not in (Act.REQUEST, Act.BYTES) or rng.random() < 0.1:
        return step._replace(choice=rng.randrange(256))
    if step.act is Act.REQUEST and rng.random() < 0.85:
        try:
            return step._replace(payload=changed_request(step.payload, rng))
        except WireError:
            pass
    return step._replace(payload=bare(step.payload, 2 * len(step.payload) + 16)[:0xFFFF])
