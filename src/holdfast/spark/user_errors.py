"""Errors for the user of Spark: one sentence with the names of options instead of a Python stack trace."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from holdfast.client.consumer_config import known_settings
from holdfast.client.errors import AuthenticationFailed, ConnectionFailed, HoldfastError, TopicError
from holdfast.spark.options import GROUP_SERVERS, KAFKA, SERVERS
from holdfast.spark.runner_process import is_started_by_spark

P = ParamSpec("P")
R = TypeVar("R")

_OPTION_HINTS: Final[dict[type[HoldfastError], str]] = {
    AuthenticationFailed: "see the options kafka.security.protocol, kafka.sasl.* and kafka.ssl.*",
    ConnectionFailed: "see the option kafka.bootstrap.servers, and whether the brokers run",
    TopicError: "see the options subscribe, subscribePattern and assign",
}


def user_facing(method: Callable[P, R]) -> Callable[P, R]:
    """Errors that the user can correct are raised without a stack trace. Other exceptions keep theirs."""

    @functools.wraps(method)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except HoldfastError as error:
            if is_started_by_spark():  # the process exits after an error, which Spark shows
                os.environ["SPARK_HIDE_TRACEBACK"] = "1"
            error.args = (with_option_names(error),)
            raise error.with_traceback(None) from None

    return wrapper


def with_option_names(error: HoldfastError) -> str:
    """The client's message, with its settings under their names as options."""
    message = _setting().sub(rf"{KAFKA}\1", str(error))
    where = next((options for kind, options in _OPTION_HINTS.items() if isinstance(error, kind)), None)
    if where is None or "option" in message:
        return message
    return f"{message}; {where.replace(SERVERS, GROUP_SERVERS) if GROUP_SERVERS in message else where}"


@functools.cache
def _setting() -> re.Pattern[str]:
    """Matches the full name of a client setting that has no prefix yet."""
    names = sorted((name for name in known_settings() if "." in name), key=len, reverse=True)
    return re.compile(rf"(?<![\w.])({'|'.join(map(re.escape, names))})(?!\.?\w)")
