"""What a guard is, and which handler has which."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast.broker.dispatch import HANDLERS, Handler, RequestContext
from holdfast.broker.security.user_desk import Access
from holdfast.broker.slices import Work
from holdfast.wire.apis.api_versions import API_VERSIONS
from holdfast.wire.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from holdfast.wire.apis.describe_cluster import DESCRIBE_CLUSTER
from holdfast.wire.apis.describe_producers import DESCRIBE_PRODUCERS
from holdfast.wire.apis.describe_topic_partitions import DESCRIBE_TOPIC_PARTITIONS
from holdfast.wire.apis.metadata import METADATA
from holdfast.wire.apis.sasl_authenticate import SASL_AUTHENTICATE
from holdfast.wire.apis.sasl_handshake import SASL_HANDSHAKE
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.message import Api

if TYPE_CHECKING:
    from holdfast.broker.server import Broker

T = TypeVar("T")

TOPIC_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_REFUSED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_REFUSED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

MESSAGES: Final = {
    TOPIC_REFUSED: "Topic authorization failed.",
    GROUP_REFUSED: "Group authorization failed.",
    CLUSTER_REFUSED: "Cluster authorization failed.",
}
"""What Kafka says with these codes, where a response has room for it."""


@dataclass(slots=True)
class Asking:
    """A request at its guard. Not frozen: that would double what it costs to make one, with every request."""

    broker: Broker
    request: Any
    context: RequestContext
    access: Access
    _function: Callable[..., Any]

    @property
    def version(self) -> int:
        return self.context.api_version

    def go_on(self, **changes: Any) -> Any:
        """The handler's answer, or a coroutine that has it later; to the request as it is changed by the guard."""
        request = replace(self.request, **changes) if changes else self.request
        return self._function(self.broker, request, self.context)


Guard = Callable[[Asking], Any]
G = TypeVar("G", bound=Guard)

GUARDS: Final[dict[int, Guard]] = {}

UNGUARDED: Final[Mapping[int, str]] = {
    API_VERSIONS.key: "anybody may ask what we can do",
    SASL_HANDSHAKE.key: "after authentication it is refused to everybody",
    SASL_AUTHENTICATE.key: "after authentication it is refused to everybody",
    METADATA.key: "the handler itself shows what may be seen",
    DESCRIBE_PRODUCERS.key: "the handler itself asks, where Kafka does: between a topic's name and its existence",
    DESCRIBE_TOPIC_PARTITIONS.key: "the handler itself shows what may be seen",
    DESCRIBE_CLUSTER.key: "every client must know where to connect; the handler tells what may be done",
    CONSUMER_GROUP_HEARTBEAT.key: "refused to everybody",
}
"""The APIs without a guard, and why."""


def guards(api: Api) -> Callable[[G], G]:
    def register(guard: G) -> G:
        if api.key in GUARDS:
            raise ValueError(f"two guards for {api.name}")
        GUARDS[api.key] = guard
        return guard

    return register


def guarded_handlers() -> dict[int, Handler]:
    """The handlers behind their guards. One that was forgotten is not served: better than served to everybody."""
    table = {key: handler for key, handler in HANDLERS.items() if key in UNGUARDED}
    for key, guard in GUARDS.items():
        table[key] = replace(HANDLERS[key], function=_behind(guard, HANDLERS[key].function))
    return table


def _behind(guard: Guard, function: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(broker: Broker, request: Any, context: RequestContext) -> Any:
        access = context.access
        assert access is not None
        answer = guard(Asking(broker, request, context, access, function))
        return through(answer) if isinstance(answer, Generator) else answer

    return guarded


# -- what guards share -------------------------------------------------------------------------------------------------


def through(answer: Any) -> Work[Any]:
    """What comes of an answer that takes time to be made, be it the guard's, the handler's, or both."""
    while isinstance(answer, Generator):
        answer = yield from answer
    return answer


def parted(things: Iterable[T], may: Callable[[T], bool]) -> Work[tuple[list[T], list[T]]]:
    """Those that may go on, and those that may not."""
    allowed: list[T] = []
    refused: list[T] = []
    for thing in things:
        yield
        (allowed if may(thing) else refused).append(thing)
    return allowed, refused


def then(asking: Asking, answer: Any, change: Callable[[Any], Any]) -> Work[Any]:
    """The handler's answer with a change, now or when it is there. A change of many things may be a generator."""
    answer = yield from through(answer)
    if isinstance(answer, Coroutine):
        return _later(asking, answer, change)
    return (yield from through(change(answer)))


async def _later(asking: Asking, answer: Coroutine[Any, Any, Any], change: Callable[[Any], Any]) -> Any:
    return await asking.broker.slices.finish(through(change(await answer)))
