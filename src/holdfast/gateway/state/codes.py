"""Error codes in Kafka's answers, which may be newer than the ones that Holdfast knows."""

from __future__ import annotations

from holdfast.wire.error_codes import ErrorCode


def known_code(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
