"""What went wrong, as one sentence in the driver's log instead of a Python stack, and in the words of Spark's user."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from holdfast.client.consumer_config import known_settings
from holdfast.client.errors import AuthenticationFailed, ConnectionFailed, HoldfastError, TopicError
from holdfast.spark.lifetime import is_runner
from holdfast.spark.options import KAFKA

P = ParamSpec("P")
R = TypeVar("R")

_OPTIONS: Final[dict[type[HoldfastError], str]] = {
    AuthenticationFailed: "see the options kafka.security.protocol, kafka.sasl.* and kafka.ssl.*",
    ConnectionFailed: "see the option kafka.bootstrap.servers, and whether the brokers run",
    TopicError: "see the options subscribe, subscribePattern and assign",
}


def in_one_sentence(method: Callable[P, R]) -> Callable[P, R]:
    """What the user can mend is told without the way it took through our code. Faults of our own keep their stack."""

    @functools.wraps(method)
    def told(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except HoldfastError as error:
            if is_runner():  # the process ends with this query, and Spark shows what it is told here
                os.environ["SPARK_HIDE_TRACEBACK"] = "1"
            error.args = (naming_options(error),)
            raise error.with_traceback(None) from None

    return told


def naming_options(error: HoldfastError) -> str:
    """What the client says, with the names that its settings have as options."""
    said = _setting().sub(rf"{KAFKA}\1", str(error))
    where = next((options for kind, options in _OPTIONS.items() if isinstance(error, kind)), None)
    return said if where is None or "option" in said else f"{said}; {where}"


@functools.cache
def _setting() -> re.Pattern[str]:
    """A setting of the client, whole and without its prefix."""
    names = sorted((name for name in known_settings() if "." in name), key=len, reverse=True)
    return re.compile(rf"(?<![\w.])({'|'.join(map(re.escape, names))})(?!\.?\w)")
