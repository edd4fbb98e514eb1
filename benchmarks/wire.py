"""One connection that uses Holdfast's own codec, for the requests before and after a load."""

from __future__ import annotations

import socket
import struct
import time
from types import TracebackType
from typing import Any, Final, Self

from benchmarks.servers import Server
from holdfast.wire.apis.find_coordinator import FindCoordinatorRequest
from holdfast.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponseGroup
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.headers import decode_response, encode_request

CLIENT_ID: Final = "bench"
COMMIT_VERSION: Final = 9
_FIND_VERSION: Final = 4
_OFFSET_FETCH_VERSION: Final = 9
_PATIENCE_SECONDS: Final = 120
_POLL_SECONDS: Final = 0.01
_CORRELATION_ID: Final = 1
_ID_BYTES: Final = 4


class Wire:
    def __init__(self, server: Server) -> None:
        self._socket = socket.create_connection(server.address, timeout=_PATIENCE_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.close()

    def ask(self, message: Any, version: int) -> Any:
        self.send(request_frame(message, version))
        _, response = decode_response(message.API, version, self.receive())
        return response

    def reply_to(self, frame: bytes) -> bytes:
        """The content of a reply to this request after its correlation id."""
        self.send(frame)
        return self.receive()[_ID_BYTES:]

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            chunk = self._socket.recv(size - len(received))
            if not chunk:
                raise ConnectionError(f"closed by the server after {len(received)} of {size} bytes")
            received += chunk
        return bytes(received)

    # -- groups --------------------------------------------------------------------------------------------------------

    def fetch_offsets(self, group: str) -> OffsetFetchResponseGroup:
        """All committed offsets of a group."""
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None)])
        answer: OffsetFetchResponseGroup = self.ask(asked, _OFFSET_FETCH_VERSION).groups[0]
        return answer

    def wait_for_group(self, group: str) -> None:
        """Waits until the server coordinates the group. Kafka creates `__consumer_offsets` with the first request, and
        then loads it."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self._coordinator_code(group) or self.fetch_offsets(group).error_code:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no coordinator for group {group} within {_PATIENCE_SECONDS} s")
            time.sleep(_POLL_SECONDS)

    def _coordinator_code(self, group: str) -> int:
        response = self.ask(FindCoordinatorRequest(coordinator_keys=[group]), _FIND_VERSION)
        code: int = response.coordinators[0].error_code
        return code


def request_frame(message: Any, version: int) -> bytes:
    return encode_request(message, version, _CORRELATION_ID, CLIENT_ID)


def expect_none(code: int, what: str) -> None:
    if code != ErrorCode.NONE:
        raise RuntimeError(f"{what} was answered with {ErrorCode(code).name}")
