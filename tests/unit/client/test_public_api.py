"""`import holdfast`: what it offers, and what it says where the client's packages are not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

import holdfast


@pytest.mark.parametrize("name", [name for name in holdfast.__all__ if name != "__version__"])
def test_everything_that_is_offered_is_there(name: str) -> None:
    assert getattr(holdfast, name).__name__ == name


def test_what_is_not_offered_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Producer'"):
        _ = holdfast.Producer


@pytest.mark.parametrize("missing", ["confluent_kafka", "numpy"])
def test_a_missing_package_is_named_with_the_extra_that_brings_it(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None\nfrom holdfast import Consumer"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.stderr.splitlines()[-1].endswith(f"holdfast.Consumer needs {missing}: pip install 'holdfast[client]'")


def test_spark_without_a_package_of_the_client_names_the_extra_to_install() -> None:
    code = "import sys; sys.modules['confluent_kafka'] = None\nimport holdfast.spark.source"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.stderr.endswith("format(\"holdfast\") needs confluent_kafka: pip install 'holdfast[client]'\n")


def test_a_broker_an_admin_and_a_member_need_none_of_it() -> None:
    code = (
        "import sys; sys.modules['confluent_kafka'] = sys.modules['numpy'] = None\n"
        "import holdfast, holdfast.broker.server, holdfast.cli.main\n"
        "from holdfast import Admin, Member, SingleWriter, WorkerPool"
    )

    subprocess.run([sys.executable, "-c", code], check=True)
