"""Serves the requests that the router does not forward (`router.ports.GroupRequests`).

A request passes three steps. Its rights are fetched from Kafka, unless they are known. Its group is adopted from Kafka,
if the gateway does not know it. Then the handler of the broker, or the gateway's own, answers it behind the same check
as in the broker. Nearly always the first two are done, and the request is answered at once.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Mapping
from typing import Any, Final

from holdfast.broker.api.checks import checked_handlers
from holdfast.broker.api.registry import HANDLERS, Handler
from holdfast.broker.api.replies import NO_REPLY, Disconnect, EncodedParts, PreEncoded
from holdfast.broker.authorization.acls import ResourceType
from holdfast.broker.network.reply_encoding import encode_in_slices, has_elements
from holdfast.broker.util.pending_answer import PendingAnswer
from holdfast.gateway.kafka.errors import KafkaRefused, KafkaUnreachable
from holdfast.gateway.requests.context import GatewayServices, RoutedContext
from holdfast.gateway.requests.handlers import CHECKED_HANDLERS, OWN_HANDLERS, own_handler, split_configs
from holdfast.gateway.requests.needed_rights import needed_rights
from holdfast.gateway.requests.refusals import CONCERNS_GROUPS, REFUSALS, groups_of
from holdfast.gateway.requests.rights import KafkaAuthorizer, Right
from holdfast.gateway.router.ports import RoutedClient
from holdfast.wire.apis.add_members_to_group import ADD_MEMBERS_TO_GROUP
from holdfast.wire.apis.alter_configs import ALTER_CONFIGS
from holdfast.wire.apis.api_versions import ApiVersion, ApiVersionsResponse
from holdfast.wire.apis.cancel_registration import CANCEL_REGISTRATION
from holdfast.wire.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from holdfast.wire.apis.delete_groups import DELETE_GROUPS
from holdfast.wire.apis.describe_configs import DESCRIBE_CONFIGS
from holdfast.wire.apis.describe_groups import DESCRIBE_GROUPS
from holdfast.wire.apis.heartbeat import HEARTBEAT
from holdfast.wire.apis.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from holdfast.wire.apis.join_group import JOIN_GROUP
from holdfast.wire.apis.join_groups import JOIN_GROUPS
from holdfast.wire.apis.leave_group import LEAVE_GROUP
from holdfast.wire.apis.offset_commit import OFFSET_COMMIT
from holdfast.wire.apis.offset_delete import OFFSET_DELETE
from holdfast.wire.apis.offset_fetch import OFFSET_FETCH
from holdfast.wire.apis.release_group import RELEASE_GROUP
from holdfast.wire.apis.sync_group import SYNC_GROUP
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.headers import decode_request_header, response_header
from holdfast.wire.message import decode, encode, sliced_decoder

LARGE_FRAME: Final = 16 * 1024
"""A larger request may have thousands of elements, so it is decoded in slices."""

BROKER_APIS: Final = (
    JOIN_GROUP,
    SYNC_GROUP,
    HEARTBEAT,
    LEAVE_GROUP,
    JOIN_GROUPS,
    ADD_MEMBERS_TO_GROUP,
    CANCEL_REGISTRATION,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    CONSUMER_GROUP_HEARTBEAT,
)
"""Answered by the handlers of the broker."""

CONFIG_APIS: Final = {
    DESCRIBE_CONFIGS.key: "results",
    ALTER_CONFIGS.key: "responses",
    INCREMENTAL_ALTER_CONFIGS.key: "responses",
}

WITHOUT_KAFKA: Final = frozenset(
    {api.key for api in BROKER_APIS} | {DESCRIBE_GROUPS.key, DELETE_GROUPS.key, OFFSET_DELETE.key, RELEASE_GROUP.key}
)
"""APIs of which no part is sent to Kafka on the client's connection: their versions are those of the gateway."""

HIDDEN: Final = frozenset({69, 76, 77, 78, 79, 88, 89, 90, 91, 92})
"""Groups of the newer protocol, share groups and streams groups: Kafka would keep them beside the gateway's."""


def _handlers() -> dict[int, Handler]:
    checked = checked_handlers({**{api.key: HANDLERS[api.key] for api in BROKER_APIS}, **CHECKED_HANDLERS})
    configs = checked_handlers({key: HANDLERS[key] for key in CONFIG_APIS})
    for key, results in CONFIG_APIS.items():
        checked[key] = own_handler(configs[key].api, split_configs(configs[key].function, results))
    return {**checked, **OWN_HANDLERS}


class LocalRequests:
    def __init__(self, services: GatewayServices, kafka_authorizer: KafkaAuthorizer | None) -> None:
        """`kafka_authorizer`: None if a users file decides about rights on groups."""
        self._services = services
        self._kafka_authorizer = kafka_authorizer
        self._handlers: Mapping[int, Handler] = _handlers()
        self.local_keys = frozenset(self._handlers)

    # -- ApiVersions ---------------------------------------------------------------------------------------------------

    def api_versions(self, kafka: ApiVersionsResponse) -> ApiVersionsResponse:
        """Kafka's, with the versions of the gateway for the requests that it answers."""
        versions = {one.api_key: one for one in kafka.api_keys if one.api_key not in HIDDEN}
        for key, handler in self._handlers.items():
            lowest, highest = handler.advertised
            theirs = versions.get(key)
            if key in WITHOUT_KAFKA:
                versions[key] = ApiVersion(key, lowest, highest)
            elif theirs is not None:
                lowest, highest = max(lowest, theirs.min_version), min(highest, theirs.max_version)
                if lowest <= highest:
                    versions[key] = ApiVersion(key, lowest, highest)
                else:
                    del versions[key]
        kafka.api_keys = [versions[key] for key in sorted(versions)]
        return kafka

    # -- requests ------------------------------------------------------------------------------------------------------

    def answer(self, frame: bytes, client: RoutedClient) -> bytes | Coroutine[Any, Any, bytes]:
        api_key, version, correlation_id, client_id, position = decode_request_header(frame)
        handler = self._handlers.get(api_key)
        if handler is None:
            raise Disconnect(f"unknown API key {api_key}")
        lowest, highest = handler.served
        if not lowest <= version <= highest:
            raise Disconnect(f"{handler.api.name} version {version}; served are {lowest} to {highest}")
        context = RoutedContext(session=client.session, api_version=version, client_id=client_id, client=client)
        if len(frame) > LARGE_FRAME:
            return self._answer_large(handler, frame, position, context, correlation_id)
        request = decode(handler.api.request, version, frame, position)
        if not self._is_ready(api_key, request, version, client):
            return self._answer_later(handler, request, context, correlation_id)
        answer = self._call(handler, request, context)
        if isinstance(answer, Coroutine | PendingAnswer):
            return self._wait(handler, answer, version, correlation_id)
        return self._encoded(handler, answer, version, correlation_id)

    async def _answer_large(
        self, handler: Handler, frame: bytes, position: int, context: RoutedContext, correlation_id: int
    ) -> bytes:
        decoding = sliced_decoder(handler.api.request, context.api_version)(frame, position)
        request, _ = await self._services.slices.run(decoding, context.session)
        return await self._answer_later(handler, request, context, correlation_id)

    def closed(self, client: RoutedClient) -> None:
        self._services.groups.connection_lost(client.session)

    def _is_ready(self, api_key: int, request: Any, version: int, client: RoutedClient) -> bool:
        """Neither Kafka's authorizer nor its coordinator has to be asked first."""
        if api_key in CONCERNS_GROUPS and not all(
            map(self._services.own_groups.is_ready, groups_of(api_key, request, version))
        ):
            return False
        if api_key == OFFSET_COMMIT.key and self._has_unknown_topic(request):
            return False
        return not self._missing_rights(api_key, request, version, client)

    def _missing_rights(self, api_key: int, request: Any, version: int, client: RoutedClient) -> list[Right]:
        if self._kafka_authorizer is None:
            return []
        wanted = needed_rights(api_key, request, version, self._services)
        return self._kafka_authorizer.missing(client, wanted)

    async def _fetch_rights(self, api_key: int, request: Any, version: int, client: RoutedClient) -> None:
        missing = self._missing_rights(api_key, request, version, client)
        if missing and self._kafka_authorizer is not None:
            await self._kafka_authorizer.fetch(client, missing)

    def _has_unknown_topic(self, request: Any) -> bool:
        topics = self._services.topics
        return any(
            (topics.get(topic.name) if topic.name else topics.by_id(topic.topic_id)) is None for topic in request.topics
        )

    async def _answer_later(self, handler: Handler, request: Any, context: RoutedContext, correlation_id: int) -> bytes:
        key, version, client = handler.api.key, context.api_version, context.client
        await self._fetch_rights(key, request, version, client)
        if key in CONCERNS_GROUPS:
            code = await self._prepare_groups(key, request, context)
            if code is ErrorCode.NONE and key == OFFSET_COMMIT.key and self._has_unknown_topic(request):
                code = await self._refresh_topics()
            if code is not ErrorCode.NONE:
                return self._encoded(handler, REFUSALS[key](request, version, code), version, correlation_id)
            # The topics of the groups' offsets, and new topics, were not known before.
            await self._fetch_rights(key, request, version, client)
        answer = self._call(handler, request, context)
        if isinstance(answer, Coroutine | PendingAnswer):
            return await self._wait(handler, answer, version, correlation_id)
        return self._encoded(handler, answer, version, correlation_id)

    async def _prepare_groups(self, api_key: int, request: Any, context: RoutedContext) -> ErrorCode:
        """Adopts the group, or reads its offsets in Kafka.

        A client without the right to use a group must not make the gateway do that. The check refuses it afterwards.
        """
        own_groups, permissions = self._services.own_groups, context.session.permissions
        assert permissions is not None
        denied = {
            name
            for operation, kind, name in needed_rights(api_key, request, context.api_version, self._services)
            if kind is ResourceType.GROUP and not permissions.group(operation, name)
        }
        names = [
            name
            for name in groups_of(api_key, request, context.api_version)
            if name not in denied and not own_groups.is_ready(name)
        ]
        if api_key == OFFSET_FETCH.key:
            await own_groups.read_ahead(names)
            return ErrorCode.NONE
        for name in names:
            code = await own_groups.adopt(name)
            if code is not ErrorCode.NONE:
                return code
        return ErrorCode.NONE

    async def _refresh_topics(self) -> ErrorCode:
        try:
            await self._services.topics.refresh()
        except (KafkaUnreachable, KafkaRefused):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

    def _call(self, handler: Handler, request: Any, context: RoutedContext) -> Any:
        answer = handler.function(self._services, request, context)
        if isinstance(answer, Generator):
            return self._services.slices.start(answer, context.session)
        return answer

    async def _wait(self, handler: Handler, answer: Any, version: int, correlation_id: int) -> bytes:
        while isinstance(answer, Coroutine | PendingAnswer):
            answer = await (answer if isinstance(answer, Coroutine) else answer.wait())
        if not isinstance(answer, PreEncoded) and answer is not NO_REPLY and has_elements(answer):
            # A response that took long to make may take long to encode.
            answer = await self._services.slices.run(encode_in_slices(answer, version))
        return self._encoded(handler, answer, version, correlation_id)

    def _encoded(self, handler: Handler, response: Any, version: int, correlation_id: int) -> bytes:
        if response is NO_REPLY:
            return b""
        if isinstance(response, PreEncoded):
            body = response.body
        elif isinstance(response, EncodedParts):
            body = b"".join(response.parts)
        else:
            body = encode(response, version)
        head = response_header(correlation_id, handler.api.key, version)
        return (len(head) + len(body)).to_bytes(4) + head + body
