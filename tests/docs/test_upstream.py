"""The program that docs/upstream shows is the one that was run."""

import re

from tests.support.kafka_distribution import REPOSITORY
from tests.support.spark_apps import APPS

PAGE = REPOSITORY / "docs" / "upstream" / "spark-two-python-sources-at-once.md"


def test_the_page_shows_the_program_that_was_run() -> None:
    program = (APPS / "two_python_sources_at_once.py").read_text()

    assert re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL) == [program]
    compile(program, "two_python_sources_at_once.py", "exec")
