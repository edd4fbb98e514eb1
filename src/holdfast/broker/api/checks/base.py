"""What a check is, and the check of each API."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from holdfast.broker.api.registry import HANDLERS, Handler
from holdfast.broker.api.replies import PreEncoded
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.authorization.authorizer import ClientPermissions
from holdfast.broker.authorization.visibility import PermittedVisibility
from holdfast.broker.util.slices import Work
from holdfast.wire.apis.api_versions import API_VERSIONS
from holdfast.wire.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from holdfast.wire.apis.sasl_authenticate import SASL_AUTHENTICATE
from holdfast.wire.apis.sasl_handshake import SASL_HANDSHAKE
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.message import Api, decode

T = TypeVar("T")

TOPIC_DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_DENIED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

MESSAGES: Final = {
    TOPIC_DENIED: "Topic authorization failed.",
    GROUP_DENIED: "Group authorization failed.",
    CLUSTER_DENIED: "Cluster authorization failed.",
}
"""Kafka's messages for these codes, in responses that have a field for one."""


@dataclass(slots=True)
class AuthorizedRequest:
    """A request at its check. Not frozen: that would double the cost of making one, with every request."""

    services: Services
    request: Any
    context: RequestContext
    permissions: ClientPermissions
    _function: Callable[..., Any]

    @property
    def version(self) -> int:
        return self.context.api_version

    def proceed(self, **changes: Any) -> Any:
        """The handler's answer to the request with these changes, or a coroutine that returns it later."""
        request = replace(self.request, **changes) if changes else self.request
        return self._function(self.services, request, self.context)

    def proceed_with_visibility(self) -> Any:
        """The handler's answer, which shows what the client is permitted to know."""
        self.narrow_visibility()
        return self.proceed()

    def narrow_visibility(self) -> None:
        self.context = replace(self.context, visibility=PermittedVisibility(self.permissions))


Check = Callable[[AuthorizedRequest], Any]
G = TypeVar("G", bound=Check)

CHECKS: Final[dict[int, Check]] = {}

UNCHECKED: Final[Mapping[int, str]] = {
    API_VERSIONS.key: "every client may ask which APIs are served",
    SASL_HANDSHAKE.key: "after authentication it is rejected for all clients",
    SASL_AUTHENTICATE.key: "after authentication it is rejected for all clients",
    CONSUMER_GROUP_HEARTBEAT.key: "rejected for all clients",
}
"""The APIs without a check, and why."""


def check(api: Api) -> Callable[[G], G]:
    def register(check_request: G) -> G:
        if api.key in CHECKS:
            raise ValueError(f"two checks for {api.name}")
        CHECKS[api.key] = check_request
        return check_request

    return register


def checked_handlers(handlers: Mapping[int, Handler] = HANDLERS) -> dict[int, Handler]:
    """The handlers behind their checks. An API without one is not served, rather than served to all clients."""
    table = {key: handler for key, handler in handlers.items() if key in UNCHECKED}
    for key, check_request in CHECKS.items():
        if key in handlers:
            table[key] = replace(handlers[key], function=_checked(check_request, handlers[key].function))
    return table


def _checked(check_request: Check, function: Callable[..., Any]) -> Callable[..., Any]:
    def checked(services: Services, request: Any, context: RequestContext) -> Any:
        permissions = context.session.permissions
        assert permissions is not None
        answer = check_request(AuthorizedRequest(services, request, context, permissions, function))
        return resolve(answer) if isinstance(answer, Generator) else answer

    return checked


# -- for checks --------------------------------------------------------------------------------------------------------


def resolve(answer: Any) -> Work[Any]:
    """Runs generators to their result: the check's, the handler's, or both."""
    while isinstance(answer, Generator):
        answer = yield from answer
    return answer


def split(things: Iterable[T], may: Callable[[T], bool]) -> Work[tuple[list[T], list[T]]]:
    """The items that are allowed, and those that are not."""
    allowed: list[T] = []
    denied: list[T] = []
    for thing in things:
        yield
        (allowed if may(thing) else denied).append(thing)
    return allowed, denied


def map_reply(authorized: AuthorizedRequest, answer: Any, change: Callable[[Any], Any]) -> Work[Any]:
    """The handler's answer with a change, now or when it is complete. The change may be a generator."""
    answer = yield from resolve(answer)
    if isinstance(answer, Coroutine):
        return _map_later(authorized, answer, change)
    return (yield from resolve(change(_decoded(authorized, answer))))


async def _map_later(
    authorized: AuthorizedRequest, answer: Coroutine[Any, Any, Any], change: Callable[[Any], Any]
) -> Any:
    return await authorized.services.slices.run(resolve(change(_decoded(authorized, await answer))))


def _decoded(authorized: AuthorizedRequest, answer: Any) -> Any:
    """A response that its handler keeps encoded, because most clients get the same one; they are short."""
    if type(answer) is not PreEncoded:
        return answer
    return decode(authorized.request.API.response, authorized.version, answer.body)
