"""The bare install and each extra alone: every command and every documented import works, or names its extra."""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

import holdfast
import holdfast.assignors
import holdfast.spark
from holdfast.cli.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from holdfast.cli.main import build_parser
from holdfast.extras import CLIENT, PLOT, SPARK
from tests.docs.test_examples import PAGES, PYTHON
from tests.install.environments import BARE, Ended, Environment, build_wheel, extras
from tests.support.holdfast_broker import HoldfastBroker
from tests.unit.cli.test_parsing import leaves

NEEDS: Final = {
    "produce": "client",
    "consume": "client",
    "pipeline land": "spark",
    "pipeline land-compact": "spark",
    "pipeline aggregate": "spark",
    "pipeline aggregate-show": "spark",
    "pipeline forensics": "spark",
    "holdfast.Consumer": "client",
    "holdfast.Pool": "client",
    "holdfast.assignors.StickyAssignor": "client",
    "holdfast.assignors.CooperativeStickyAssignor": "client",
    "holdfast.spark.Aggregate": "spark",
    "holdfast.spark.Land": "spark",
    "holdfast.spark.ForensicsThresholds": "spark",
    "holdfast.spark.compact": "spark",
    "holdfast.spark.forensics": "spark",
    "holdfast.spark.read_landed": "spark",
    "holdfast.spark.read_totals": "spark",
}
"""Everything else works with the bare install."""
BRINGS: Final = {"client": {"client"}, "plot": {"plot"}, "spark": {"client", "spark"}}
NEED_NUMPY: Final = {"holdfast.assignors.StickyAssignor", "holdfast.assignors.CooperativeStickyAssignor"}
"""The packages of `plot` include numpy, the only package of `client` that these need."""
NOT_IMPORTED: Final = {"protobuf"}
"""PySpark's transformWithState needs it and does not declare it."""

ADDRESS: Final = "127.0.0.1:9092"
"""Where the examples look for a broker."""
REFUSED: Final = {
    "gateway doctor": "is a Holdfast broker, not a gateway",
    "gateway release": "its coordinator is a broker, not a Holdfast gateway",
    "groups describe": "there is no group 'orders'",
    "groups delete": "GROUP_ID_NOT_FOUND",
    "groups remove-members": "2 of 2 members were not removed",
    "groups reset-offsets": "has committed to no topic",
    "topics create": "TOPIC_ALREADY_EXISTS",
    "topics add-partitions": "UNKNOWN_TOPIC_OR_PARTITION",
    "users grant": "there is no user 'alice'",
    "users revoke": "this was never granted",
}
"""Examples that cannot be fulfilled, in this order, where there is nothing but a topic; and what is said of them."""


def commands() -> dict[str, argparse.ArgumentParser]:
    """Of the parser itself, so that a new one is here too. `serve` is the broker that the others are tried on, and
    `gateway` runs until it is stopped."""
    found = {one.prog.removeprefix("holdfast "): one for one in leaves(build_parser())}
    return {name: parser for name, parser in found.items() if name not in ("serve", "gateway")}


def example_of(parser: argparse.ArgumentParser) -> str:
    _, first, *_ = (parser.epilog or "").splitlines()
    return first.strip()


def documented_names() -> set[str]:
    """`holdfast.Consumer` for `from holdfast import Consumer`: what the pages import, and what the packages offer."""
    found = {
        f"{package.__name__}.{name}"
        for package in (holdfast, holdfast.assignors, holdfast.spark)
        for name in package.__all__
    }
    for page in PAGES:
        for block in PYTHON.findall(page.read_text()):
            for node in ast.walk(ast.parse(block)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "holdfast":
                    found |= {f"{node.module}.{one.name}" for one in node.names}
    return found


# -- given -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


_FAST: Final = (BARE, "client")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(extra, marks=() if extra in _FAST else pytest.mark.real, id=extra or "bare")
        for extra in (BARE, *extras())
    ],
)
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Environment:
    return Environment(tmp_path_factory.mktemp("installed"), wheel, request.param)


@pytest.fixture(scope="module")
def broker(installed: Environment) -> Iterator[HoldfastBroker]:
    with HoldfastBroker({"group.initial.rebalance.delay.ms": "0"}, python=installed.python) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("orders", key=b"a", value=b"apples")
        assert producer.flush(60) == 0
        yield broker


# -- then --------------------------------------------------------------------------------------------------------------


def test_the_extras_bring_what_they_are_said_to_bring() -> None:
    brought = {extra: {re.split(r"[<>=\[]", one)[0].replace("-", "_") for one in extras()[extra]} for extra in BRINGS}
    assert brought == {"client": set(CLIENT), "plot": set(PLOT), "spark": {*SPARK, *NOT_IMPORTED}}


def test_every_command_that_needs_an_extra_says_so_to_the_parser() -> None:
    declared = {name for name, parser in commands().items() if parser.get_default("packages")}
    assert declared == {name for name in NEEDS if name in commands()}


@pytest.mark.timeout(900)  # four of the commands start a Spark each, where there is one
def test_every_command_works_or_names_the_extra_that_it_needs(installed: Environment, broker: HoldfastBroker) -> None:
    for name, parser in commands().items():
        ended = installed.run_shell(example_of(parser).replace(ADDRESS, broker.bootstrap))
        extra = NEEDS.get(name)
        if extra is None or extra in BRINGS.get(installed.extra, ()):
            works(name, ended)
        else:
            names_the_extra(name, ended, extra)


def works(name: str, ended: Ended) -> None:
    refusal = REFUSED.get(name)
    if refusal is None:
        assert ended.code in (EXIT_OK, EXIT_INTERRUPTED), (name, str(ended))
    else:
        assert (ended.code, "Traceback" in ended.errors) == (EXIT_FAILED, False), (name, str(ended))
        assert refusal in ended.errors, (name, str(ended))


def names_the_extra(name: str, ended: Ended, extra: str) -> None:
    assert (ended.code, ended.output) == (EXIT_FAILED, ""), (name, str(ended))
    sentence = rf"holdfast {name}: this command needs [\w, ]+: pip install 'holdfast\[{extra}\]'\n"
    assert re.fullmatch(sentence, ended.errors), (name, str(ended))


IMPORTS: Final = """
import importlib, json, sys
said = {}
for name in sys.argv[1:]:
    module, _, attribute = name.rpartition(".")
    try:
        getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        said[name] = str(error)
print(json.dumps(said))
"""


def test_every_documented_import_works_or_names_the_extra_that_it_needs(installed: Environment) -> None:
    names = sorted(documented_names())

    ended = installed.run_python(IMPORTS, *names)

    assert ended.code == EXIT_OK, str(ended)
    refused = json.loads(ended.output)
    brought = BRINGS.get(installed.extra, set[str]())
    lacking = {name: extra for name, extra in NEEDS.items() if name in names and extra not in brought}
    if installed.extra == "plot":
        lacking = {name: extra for name, extra in lacking.items() if name not in NEED_NUMPY}
    assert refused.keys() == lacking.keys()
    for name, extra in lacking.items():
        assert re.fullmatch(rf"{re.escape(name)} needs [\w, ]+: pip install 'holdfast\[{extra}\]'", refused[name])
    assert {"holdfast.Admin", "holdfast.Consumer", "holdfast.spark.Land", "holdfast.wire.message.decode"} <= set(names)


def test_an_assignor_by_name_names_the_extra_that_it_needs(installed: Environment) -> None:
    ended = installed.run_python("from holdfast.assignors import assignor; print(assignor('sticky').name)")

    if "numpy" in PACKAGES.get(installed.extra, ()):
        assert (ended.code, ended.output) == (EXIT_OK, "sticky\n"), str(ended)
    else:
        assert ended.errors.endswith(
            "the sticky assignor needs confluent_kafka, numpy: pip install 'holdfast[client]'\n"
        )


PACKAGES: Final = {
    "client": {"confluent_kafka", "numpy"},
    "plot": {"matplotlib", "numpy"},
    "spark": {"confluent_kafka", "deltalake", "google.protobuf", "numpy", "obstore", "pandas", "pyarrow", "pyspark"},
}
"""As they are imported."""
IMPORT_PACKAGES: Final = """
import importlib, json, sys
imported = []
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
        imported.append(name)
    except ModuleNotFoundError:
        pass
print(json.dumps(imported))
"""


def test_an_extra_alone_brings_its_packages_and_no_other(installed: Environment) -> None:
    every = sorted(set().union(*PACKAGES.values()))

    ended = installed.run_python(IMPORT_PACKAGES, *every)

    assert ended.code == EXIT_OK, str(ended)
    assert set(json.loads(ended.output)) == PACKAGES.get(installed.extra, set())
