"""Which function answers which API, in which versions. The ApiVersions reply is made from this table.

A handler is a function (broker, request, context) that returns the response, or a coroutine for one that has to wait:
then the request is parked, which blocks its own connection and nobody else's. One whose work grows with the request is
a generator function, which yields wherever it may pause (`slices.py`). Each handler lives in `handlers/<api>.py` and
registers itself with `@handles`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.message import Api

if TYPE_CHECKING:
    from holdfast.broker.connection import Connection
    from holdfast.broker.security.user_desk import Access

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True)
class RequestContext:
    """Who asks, and how."""

    connection: Connection
    api_version: int
    correlation_id: int
    client_id: str | None

    @property
    def client_host(self) -> str:
        return self.connection.client_host

    @property
    def advertised(self) -> tuple[str, int]:
        """Where this client is told to connect: each listener has an address of its own."""
        return self.connection.door.advertised

    @property
    def access(self) -> Access | None:
        """What this client may do; None where nobody is asked who he is."""
        return self.connection.access


class Encoded:
    """A response body that is encoded already."""

    __slots__ = ("body",)

    def __init__(self, body: bytes) -> None:
        self.body = body


class EncodedParts:
    """A response body in pieces; the first one is empty, and `size` is that of all of them."""

    __slots__ = ("parts", "size")

    def __init__(self, parts: list[Any], size: int) -> None:
        self.parts = parts
        self.size = size


class NoReply:
    """The client does not want a response: a Produce with acks=0."""

    __slots__ = ()


NO_REPLY: Final = NoReply()


class LastReply:
    """A response after which the connection is closed; the reason is for the log."""

    __slots__ = ("reason", "response")

    def __init__(self, response: Any, reason: str) -> None:
        self.response = response
        self.reason = reason


class Disconnect(Exception):
    """The only answer that fits is a closed connection; the text is for the log."""


class Refused(Exception):
    """One topic, partition or resource of a request is answered with an error; the others go on."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Handler:
    api: Api
    function: Callable[..., Any]
    served: tuple[int, int]
    advertised: tuple[int, int]


HANDLERS: Final[dict[int, Handler]] = {}


def handles(api: Api, *, advertised_from: int | None = None) -> Callable[[F], F]:
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
