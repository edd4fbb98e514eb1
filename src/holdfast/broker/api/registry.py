"""The table of handlers, by API and version. The ApiVersions reply is made from it.

A handler is a function (services, request, context) that returns the response. If it has to wait, it returns a
coroutine or a `PendingAnswer`, and the request is parked. A parked request blocks only its own connection. If the work
grows with the request, the handler is a generator function that yields wherever it may pause (`util/slices.py`). Each
handler is in `handlers/<api>.py` and registers itself with `@handler`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from holdfast.wire.message import Api

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Handler:
    api: Api
    function: Callable[..., Any]
    served: tuple[int, int]
    advertised: tuple[int, int]


HANDLERS: Final[dict[int, Handler]] = {}


def handler(api: Api, *, advertised_from: int | None = None) -> Callable[[F], F]:
    """Registers the handler of an API.

    `advertised_from`: advertise from this lower version on, although requests below our definitions are refused.
    Apache Kafka 4 does so for Produce, because librdkafka looks for Produce v0 to v2 before it trusts a broker.
    """

    def register(function: F) -> F:
        if api.key in HANDLERS:
            raise ValueError(f"two handlers for {api.name}")
        lowest, highest = api.versions
        advertised = (lowest if advertised_from is None else advertised_from, highest)
        HANDLERS[api.key] = Handler(api, function, api.versions, advertised)
        return function

    return register
