"""The Kafka cluster behind the gateway: its brokers, and a connection to each.

The list of brokers is fetched every few seconds, so that brokers that are added, removed or moved are followed. Leaders
and coordinators are remembered until a caller asks with `refresh=True`, which it does after NOT_LEADER_OR_FOLLOWER,
NOT_COORDINATOR, or a lost connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from holdfast.broker.structured_log import log_event
from holdfast.client.addresses import Address
from holdfast.gateway.brokers import BootstrapAddress, BrokerDirectory, GatewayAddresses, split_usable
from holdfast.gateway.kafka.connection import REQUEST_TIMEOUT_S, KafkaConnection, connect
from holdfast.gateway.kafka.coordinators import Coordinators
from holdfast.gateway.kafka.discovery import brokers_request, discover, listed_brokers
from holdfast.gateway.kafka.errors import KafkaRefused, KafkaSetupError, KafkaUnreachable
from holdfast.gateway.kafka.leaders import PartitionLeaders
from holdfast.gateway.kafka.node_locator import NodeLocator, WrongBroker
from holdfast.gateway.kafka.pool import ConnectionPool
from holdfast.gateway.kafka.settings import KafkaClientSettings
from holdfast.gateway.kafka.shared_tasks import SharedTasks
from holdfast.wire.apis.metadata import MetadataResponse

logger = logging.getLogger(__name__)

START_TIMEOUT_S: Final = 30.0
REFRESH_S: Final = 5.0
"""How often the list of brokers is fetched."""

_ATTEMPT_TIMEOUT_S: Final = 10.0
_LEAST_SHARE_S: Final = 5.0
"""A broker that does not answer in this time is passed over for the next one."""
_START_RETRY_S: Final = 1.0


class KafkaCluster:
    """Any: a request of `holdfast.wire.apis`, and its response."""

    def __init__(
        self,
        bootstrap: Sequence[BootstrapAddress],
        settings: KafkaClientSettings,
        advertised: GatewayAddresses,
        *,
        refresh_s: float = REFRESH_S,
    ) -> None:
        self.cluster_id = ""
        self.brokers: Final = BrokerDirectory(advertised)
        self._bootstrap = tuple(bootstrap)
        self._settings = settings
        self._refresh_s = refresh_s
        self._locator = NodeLocator(bootstrap, settings)
        self._pool = ConnectionPool(self.brokers, settings, self._locator.check)
        self._leaders = PartitionLeaders(self.ask_any, self.brokers)
        self._coordinators = Coordinators(self._ask_some, self.brokers)
        self._refreshing: SharedTasks[None, None] = SharedTasks()
        self._refresher: asyncio.Task[None] | None = None
        self._preferred: int | None = None
        """The broker that last answered a question to any."""
        self._complaints: frozenset[str] = frozenset()

    # -- start and end -------------------------------------------------------------------------------------------------

    async def start(self, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Finds the cluster and decides on the mode. While Kafka cannot be reached, tries again for `timeout_s`.

        Raises KafkaUnreachable if Kafka cannot be reached, and KafkaSetupError if the operator must change something.
        Call `close` also after a failure.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            try:
                # Also the last attempt has some time, so that its error is not that there was none.
                await self._discover(min(max(deadline - loop.time(), _LEAST_SHARE_S), _ATTEMPT_TIMEOUT_S))
                break
            except KafkaUnreachable as failure:
                if loop.time() + _START_RETRY_S >= deadline:
                    raise
                log_event(logger, "Kafka not reachable yet", logging.WARNING, reason=str(failure))
            await asyncio.sleep(_START_RETRY_S)
        self._refresher = asyncio.create_task(self._keep_refreshed())

    async def close(self) -> None:
        """Ends all connections and tasks. Calls that wait raise KafkaUnreachable."""
        if self._refresher is not None:
            self._refresher.cancel()
            with suppress(asyncio.CancelledError):
                await self._refresher
        await self._refreshing.close()
        await self._leaders.close()
        await self._coordinators.close()
        await self._pool.close()

    async def _discover(self, timeout_s: float) -> None:
        found = await discover(self._bootstrap, self._settings, self.brokers.gateway, timeout_s=timeout_s)
        self.cluster_id = found.cluster_id
        self.brokers.is_transparent = found.is_transparent
        located, _ = await self._located(found.listed)
        missing = sorted(found.listed.keys() - located.keys())
        if missing:
            text = self._without_address(missing)
            # An address that does not answer now may be the one that is missing.
            raise KafkaUnreachable(text) if self._locator.unreachable else KafkaSetupError(text)
        self.brokers.update(located)
        await self._check_given(timeout_s)

    async def _check_given(self, timeout_s: float) -> None:
        """Whether the brokers of `--kafka ID=HOST:PORT` are where they are said to be. One may be down."""
        given = [node_id for node_id in self._locator.given if node_id in self.brokers]
        async with _deadline(timeout_s, "checking the addresses of --kafka"):
            outcomes = await asyncio.gather(*map(self._pool.shared, given), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, WrongBroker):
                raise KafkaSetupError(f"{outcome}: correct the ids in --kafka") from outcome
            if isinstance(outcome, KafkaRefused):
                raise KafkaSetupError(f"Kafka does not accept the gateway: {outcome}") from outcome

    # -- requests ------------------------------------------------------------------------------------------------------

    async def ask(
        self, node_id: int, request: Any, *, version: int | None = None, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Any:
        """The response of this broker, on the shared connection."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        async with _deadline(timeout_s, f"connecting to broker {node_id}"):
            connection = await self.connection(node_id)
        return await connection.ask(request, version=version, timeout_s=max(deadline - loop.time(), 0))

    async def ask_any(self, request: Any, *, version: int | None = None, timeout_s: float = REQUEST_TIMEOUT_S) -> Any:
        """The response of any broker. If one does not answer, the next is asked, so it must be safe to repeat."""
        return await self._ask_some(lambda _: request, timeout_s, version)

    async def connection(self, node_id: int) -> KafkaConnection:
        """The shared connection to this broker. Do not close it, and do not let a request wait in it for long."""
        if node_id not in self.brokers:
            await self.refresh()
        return await self._pool.shared(node_id)

    async def open_connection(self, node_id: int) -> KafkaConnection:
        """A separate connection to this broker, for requests that wait, such as JoinGroup. The caller closes it."""
        if node_id not in self.brokers:
            await self.refresh()
        return await self._pool.open(node_id)

    async def leader_of(self, topic: str, partition: int, *, refresh: bool = False) -> int:
        """The broker that leads the partition. Raises KafkaUnreachable while there is none."""
        return await self._leaders.leader_of(topic, partition, refresh=refresh)

    async def coordinator_of(
        self, key: str, key_type: int, *, refresh: bool = False, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> int:
        """The broker that coordinates this group (key type 0) or transactional id (1)."""
        return await self._coordinators.coordinator_of(key, key_type, refresh=refresh, timeout_s=timeout_s)

    async def _ask_some(
        self, make: Callable[[KafkaConnection], Any], timeout_s: float, version: int | None = None
    ) -> Any:
        """Asks one broker after the other, with the request that `make` returns for its connection."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        failures = []
        candidates = self._candidates()
        for number, candidate in enumerate(candidates):
            left_s = max(deadline - loop.time(), 0)
            # Leaves time for the next brokers if one is silent.
            share_s = max(left_s / (len(candidates) - number), min(left_s, _LEAST_SHARE_S))
            until = loop.time() + share_s
            try:
                async with self._connected(candidate, share_s) as connection:
                    answer = await connection.ask(
                        make(connection), version=version, timeout_s=max(until - loop.time(), 0)
                    )
            except KafkaUnreachable as failure:
                failures.append(str(failure))
                continue
            if isinstance(candidate, int):
                self._preferred = candidate
            return answer
        raise KafkaUnreachable(f"no broker answers: {'; '.join(failures)}")

    def _candidates(self) -> list[int | Address]:
        """The broker that answered last, those with a connection, the others, and the other addresses of `--kafka`."""
        node_ids = sorted(
            self.brokers.node_ids,
            key=lambda node_id: (node_id != self._preferred, not self._pool.is_connected(node_id)),
        )
        known = {self.brokers.upstream(node_id) for node_id in node_ids}
        others = dict.fromkeys(one.address for one in self._bootstrap if one.address not in known)
        return [*node_ids, *others]

    @asynccontextmanager
    async def _connected(self, candidate: int | Address, timeout_s: float) -> AsyncIterator[KafkaConnection]:
        if isinstance(candidate, int):
            async with _deadline(timeout_s, f"connecting to broker {candidate}"):
                shared = await self._pool.shared(candidate)
            yield shared
            return
        own = await connect(candidate, self._settings, timeout_s=timeout_s)
        try:
            yield own
        finally:
            own.close()

    # -- the list of brokers -------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Fetches the list of brokers now. Concurrent calls share one request."""
        await self._refreshing.run(None, self._refresh)

    async def _refresh(self) -> None:
        response: MetadataResponse = await self.ask_any(brokers_request(), timeout_s=_ATTEMPT_TIMEOUT_S)
        if response.cluster_id != self.cluster_id:
            raise KafkaUnreachable(
                f"a broker of cluster {response.cluster_id} answers, but the gateway serves cluster {self.cluster_id}: "
                "correct --kafka, or the addresses that the brokers advertise, and restart the gateway"
            )
        located, complaints = await self._located(listed_brokers(response))
        self.brokers.update(located)
        self._pool.close_moved()
        for complaint in sorted(complaints - self._complaints):
            log_event(logger, "broker not served", logging.ERROR, reason=complaint)
        self._complaints = complaints

    async def _located(self, listed: Mapping[int, Address]) -> tuple[dict[int, Address], frozenset[str]]:
        """The real addresses of the brokers that Metadata lists, and why others of them cannot be used."""
        is_transparent = self.brokers.is_transparent
        usable, complaints = split_usable(listed, self.brokers.gateway, is_transparent=is_transparent)
        if is_transparent:
            located = await self._locator.locate(usable.keys())
        else:
            given = self._locator.given
            located = {node_id: given.get(node_id, address) for node_id, address in usable.items()}
        missing = sorted(usable.keys() - located.keys())
        if missing:
            complaints.append(self._without_address(missing))
        return located, frozenset(complaints)

    def _without_address(self, missing: Sequence[int]) -> str:
        if self._locator.refusal is not None:
            return str(self._locator.refusal)
        text = (
            f"--kafka has no address of {_named(missing)}, and the brokers advertise the gateway instead of their own "
            "address: add HOST:PORT or ID=HOST:PORT of every broker, on the listener for the gateway"
        )
        silent = "; ".join(self._locator.unreachable.values())
        return f"{text} (and these do not answer: {silent})" if silent else text

    async def _keep_refreshed(self) -> None:
        is_reached = True
        while True:
            await asyncio.sleep(self._refresh_s)
            try:
                await self.refresh()
                await self._check_moved()
            except (KafkaUnreachable, KafkaRefused) as failure:
                if is_reached:
                    log_event(logger, "the list of brokers cannot be fetched", logging.WARNING, reason=str(failure))
                is_reached = False
                continue
            except Exception:  # the brokers must be followed further
                logger.exception("the list of brokers cannot be fetched")
                continue
            if not is_reached:
                log_event(logger, "the list of brokers is fetched again", brokers=len(self.brokers.node_ids))
            is_reached = True

    async def _check_moved(self) -> None:
        """In transparent mode, only a new connection shows that another broker is at an address."""
        if self.brokers.is_transparent:
            lost = [node_id for node_id in self.brokers.node_ids if not self._pool.is_connected(node_id)]
            await asyncio.gather(*map(self._pool.shared, lost), return_exceptions=True)


@asynccontextmanager
async def _deadline(timeout_s: float, what: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError:
        raise KafkaUnreachable(f"{what} took longer than {timeout_s:.1f} s") from None


def _named(node_ids: Sequence[int]) -> str:
    return f"broker {node_ids[0]}" if len(node_ids) == 1 else f"brokers {', '.join(map(str, node_ids))}"
