"""Errors of Spark in one sentence: it adds stack traces of Python and Java, and descriptions of the query."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from itertools import dropwhile
from typing import Final

from holdfast.spark.pipelines.errors import QueryFailed

_PYTHON_STACK: Final = "Traceback (most recent call last):"
_JAVA_STACK: Final = re.compile(r"\n\tat |\nDriver stacktrace:")
_PREFIX: Final = re.compile(r"(An error occurred while calling \S+ : )?((holdfast|org\.apache\.spark)\.[\w.$]+: )?")


@contextlib.contextmanager
def spark_errors() -> Iterator[None]:
    """Errors that come through Spark, such as those in the tasks of a job, as QueryFailed."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise
        raise QueryFailed(spark_error_text(str(error))) from error


def spark_error_text(error: str) -> str:
    text = error.partition("=== Streaming Query ===")[0].partition("JVM stacktrace")[0].partition("SQLSTATE")[0]
    _, python_stack, text = text.rpartition("terminated with exception:")[2].rpartition(_PYTHON_STACK)
    lines = _JAVA_STACK.split(text, maxsplit=1)[0].strip("\n").splitlines()
    if python_stack:
        lines = list(dropwhile(lambda line: line.startswith(" "), lines))
    words = " ".join(" ".join(lines).split())
    return _PREFIX.sub("", words, count=1) or "Spark has ended the query"
