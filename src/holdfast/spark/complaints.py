"""What went wrong, as one sentence in the driver's log instead of a Python stack."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from holdfast.client.errors import HoldfastError
from holdfast.spark.lifetime import is_runner

P = ParamSpec("P")
R = TypeVar("R")


def in_one_sentence(method: Callable[P, R]) -> Callable[P, R]:
    """What the user can mend is told without the way it took through our code. Faults of our own keep their stack."""

    @functools.wraps(method)
    def told(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except HoldfastError as error:
            if is_runner():  # the process ends with this query, and Spark shows what it is told here
                os.environ["SPARK_HIDE_TRACEBACK"] = "1"
            raise error.with_traceback(None) from None

    return told
