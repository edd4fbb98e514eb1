"""The interfaces between the router and the other parts of the gateway."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from holdfast.broker.api.request import ClientSession
from holdfast.client.addresses import Address
from holdfast.wire.apis.api_versions import ApiVersionsResponse


class Brokers(Protocol):
    """The brokers of the cluster, as the router sees them; `BrokerDirectory` is one."""

    is_transparent: bool
    """Kafka advertises the gateway's addresses itself, so its responses need no rewriting."""

    @property
    def node_ids(self) -> Sequence[int]:
        """The live brokers, in order."""

    def upstream(self, node_id: int) -> Address:
        """Where the gateway connects to. Raises KafkaUnreachable for a broker that is not live."""

    def advertised(self, node_id: int) -> Address:
        """The gateway's own address of this broker. Raises KafkaSetupError if there is no such port."""

    def on_changed(self, action: Callable[[], None]) -> None:
        """`action` is called after brokers were added, removed or moved."""


class RoutedClient(Protocol):
    """A client's connection, as `GroupRequests` sees it."""

    session: ClientSession
    node_id: int | None
    """The broker of the listener; None on the bootstrap port."""

    async def ask(self, request: Any, version: int) -> Any:
        """Asks Kafka on this client's own connection, so with its principal.

        Only while a request of this client is being answered. Raises KafkaUnreachable if there is no connection. In
        rewriting mode the response has the gateway's addresses, because it is meant for the client.
        """


class GroupRequests(Protocol):
    """Answers the requests that are not forwarded to Kafka."""

    local_keys: frozenset[int]
    """The API keys of these requests."""

    def answer(self, frame: bytes, client: RoutedClient) -> bytes | Coroutine[Any, Any, bytes]:
        """The whole response with its length, for a request without its length; empty if there is no response.

        If it raises WireError, Disconnect or KafkaUnreachable, the client's connection is closed and the text is
        logged. The coroutine is cancelled when the client disconnects.
        """

    def api_versions(self, kafka: ApiVersionsResponse) -> ApiVersionsResponse:
        """What clients may use, given what the broker supports."""

    def closed(self, client: RoutedClient) -> None:
        """The client has disconnected. Called once for each client that was admitted."""
