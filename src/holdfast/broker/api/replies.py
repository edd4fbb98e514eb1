"""What a handler may return instead of a response, and what it may raise; also a `PendingAnswer`."""

from __future__ import annotations

from typing import Any, Final

from holdfast.wire.error_codes import ErrorCode


class PreEncoded:
    """An encoded response body."""

    __slots__ = ("body",)

    def __init__(self, body: bytes) -> None:
        self.body = body


class EncodedParts:
    """A response body in pieces. The first piece is empty, and `size` is the size of all pieces."""

    __slots__ = ("parts", "size")

    def __init__(self, parts: list[Any], size: int) -> None:
        self.parts = parts
        self.size = size


class NoReply:
    """The client does not want a response: a Produce with acks=0."""

    __slots__ = ()


NO_REPLY: Final = NoReply()


class ReplyAndClose:
    """A response after which the connection is closed; the reason is for the log."""

    __slots__ = ("reason", "response")

    def __init__(self, response: Any, reason: str) -> None:
        self.response = response
        self.reason = reason


class Disconnect(Exception):
    """The only possible answer is to close the connection; the text is for the log."""


class PartialError(Exception):
    """One topic, partition or resource of a request is answered with an error; the others are served."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
