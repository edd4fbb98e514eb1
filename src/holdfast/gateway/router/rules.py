"""How the requests of each API are handled: answered by the gateway, or forwarded to Kafka."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final

from holdfast.gateway.router.expected import Expected
from holdfast.gateway.router.ports import Brokers
from holdfast.gateway.router.rewriting import (
    CHANGED,
    FIRST_PRODUCE_WITH_ADDRESSES,
    metadata_beginning,
    with_gateway_addresses,
)
from holdfast.wire.apis.api_versions import API_VERSIONS
from holdfast.wire.apis.create_partitions import CREATE_PARTITIONS
from holdfast.wire.apis.create_topics import CREATE_TOPICS
from holdfast.wire.apis.delete_topics import DELETE_TOPICS
from holdfast.wire.apis.metadata import METADATA
from holdfast.wire.apis.produce import PRODUCE
from holdfast.wire.apis.sasl_authenticate import SASL_AUTHENTICATE
from holdfast.wire.apis.sasl_handshake import SASL_HANDSHAKE
from holdfast.wire.message import APIS, Api

BEFORE_AUTHENTICATION: Final = frozenset((API_VERSIONS.key, SASL_HANDSHAKE.key, SASL_AUTHENTICATE.key))
"""Read by the router itself; and all that Kafka answers before a client has authenticated."""

ExpectedOf = Callable[[int, int], Expected]
"""(correlation id, version) → the response."""


class Kind(Enum):
    LOCAL = 1
    """`GroupRequests` answers it."""
    READ = 2
    """The router answers it, after asking Kafka."""
    PRODUCE = 3
    """Forwarded; there may be no response."""
    FORWARD = 4


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    kind: Kind
    highest: int
    """The highest version that clients may use."""
    expected: ExpectedOf


_ANY_VERSION: Final = (1 << 15) - 1


def make_rules(local_keys: frozenset[int], highest: Mapping[int, int], brokers: Brokers) -> dict[int, Rule]:
    """By API key. Requests without a rule are forwarded, and their responses pass."""
    rules = {key: _rule(key, Kind.FORWARD, highest, _passing) for key in highest}
    for api in (CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS):
        rules[api.key] = _rule(api.key, Kind.FORWARD, highest, _changing_topics)
    rules[PRODUCE.key] = _rule(PRODUCE.key, Kind.PRODUCE, highest, _passing)
    if not brokers.is_transparent:
        for api in CHANGED:
            kind = Kind.PRODUCE if api is PRODUCE else Kind.FORWARD
            rules[api.key] = _rule(api.key, kind, highest, _rewritten(api, brokers))
        rules[METADATA.key] = _rule(METADATA.key, Kind.FORWARD, highest, _metadata(brokers))
    for key in BEFORE_AUTHENTICATION:
        rules[key] = _rule(key, Kind.READ, highest, _passing)
    for key in local_keys - BEFORE_AUTHENTICATION:
        rules[key] = _rule(key, Kind.LOCAL, {}, _passing)
    return rules


def _rule(key: int, kind: Kind, highest: Mapping[int, int], expected: ExpectedOf) -> Rule:
    name = APIS[key].name if key in APIS else f"API {key}"
    return Rule(name, kind, highest.get(key, _ANY_VERSION), expected)


def _passing(correlation_id: int, _version: int) -> Expected:
    return Expected(correlation_id)


def _changing_topics(correlation_id: int, _version: int) -> Expected:
    return Expected(correlation_id, changes_topics=True)


def _metadata(brokers: Brokers) -> ExpectedOf:
    def expected(correlation_id: int, version: int) -> Expected:
        return Expected(correlation_id, begin=lambda frame, size: metadata_beginning(frame, size, version, brokers))

    return expected


def _rewritten(api: Api, brokers: Brokers) -> ExpectedOf:
    def expected(correlation_id: int, version: int) -> Expected:
        if api is PRODUCE and version < FIRST_PRODUCE_WITH_ADDRESSES:
            return Expected(correlation_id)
        return Expected(correlation_id, partial(with_gateway_addresses, api=api, version=version, brokers=brokers))

    return expected
