"""A wire that holds one member's next request of an API, or the answer to it, until the test has done what it wants."""

from __future__ import annotations

import struct
import threading
import time
from dataclasses import dataclass, field
from enum import Enum

from tests.support.tcp_proxy import _REQUEST_HEAD, TcpProxy, _Link, _read_frame

MAX_HOLD_S = 60.0
_CLIENT_ID_AT = 4 + _REQUEST_HEAD.size


class Side(Enum):
    REQUEST = "request"
    """The broker has not seen it."""
    REPLY = "reply"
    """The broker has done what was asked, and the member does not know."""


@dataclass(eq=False)
class Hold:
    client_id: str
    api_key: int
    side: Side
    caught: threading.Event = field(default_factory=threading.Event)
    answered: threading.Event = field(default_factory=threading.Event)
    """The broker has answered a request that was held and passed on."""
    _decided: threading.Event = field(default_factory=threading.Event)
    _passes: bool = False

    def pass_on(self) -> None:
        self._passes = True
        self._decided.set()

    def drop(self) -> None:
        """It is never delivered, and its connection is cut."""
        self._decided.set()

    def await_caught(self) -> None:
        assert self.caught.wait(MAX_HOLD_S), f"no {self.side.value} of API {self.api_key} for {self.client_id}"

    def decision(self) -> bool:
        """In the wire's thread: whether it is to be delivered, once the test has decided."""
        self.caught.set()
        self._decided.wait(MAX_HOLD_S)
        return self._passes


class PausingProxy(TcpProxy):
    def __init__(self) -> None:
        super().__init__()
        self._holds: list[Hold] = []
        self._requests: dict[tuple[_Link, int], Hold] = {}

    def hold(self, client_id: str, api_key: int, side: Side) -> Hold:
        """Catch the next one. Everything else on the same connection waits behind it."""
        hold = Hold(client_id, api_key, side)
        with self._lock:
            self._holds.append(hold)
        return hold

    def _forward_requests(self, link: _Link) -> None:
        while frame := _read_frame(link.client):
            api_key, _, correlation_id = _REQUEST_HEAD.unpack_from(frame, 4)
            with self._lock:
                link.unanswered[correlation_id] = (api_key, time.monotonic())
                hold = self._hold_for(api_key, frame)
                if hold is not None:
                    self._requests[link, correlation_id] = hold
            if hold is not None and hold.side is Side.REQUEST and not hold.decision():
                return
            link.broker.sendall(frame)

    def _forward_replies(self, link: _Link) -> None:
        while frame := _read_frame(link.broker):
            (correlation_id,) = struct.unpack_from(">i", frame, 4)
            with self._lock:
                link.unanswered.pop(correlation_id, None)
                hold = self._requests.pop((link, correlation_id), None)
            if hold is not None:
                hold.answered.set()
                if hold.side is Side.REPLY and not hold.decision():
                    return
            link.client.sendall(frame)

    def _hold_for(self, api_key: int, frame: bytes) -> Hold | None:
        for hold in self._holds:
            if hold.api_key == api_key and hold.client_id == _client_id(frame):
                self._holds.remove(hold)
                return hold
        return None


def _client_id(frame: bytes) -> str:
    (size,) = struct.unpack_from(">h", frame, _CLIENT_ID_AT)
    return frame[_CLIENT_ID_AT + 2 : _CLIENT_ID_AT + 2 + max(0, size)].decode()
