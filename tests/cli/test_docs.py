"""The console examples of docs/cli.md: each command is run, and prints what the page says. `…` stands for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_TERMINATED, EXIT_USAGE
from holdfast.cli.main import build_parser
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.kafka_distribution import REPOSITORY
from tests.unit.cli.test_parsing import leaves

PAGE = (REPOSITORY / "docs" / "cli.md").read_text()
ADDRESS = "127.0.0.1:9092"
"""Where the page looks for a broker."""


def examples() -> Iterator[tuple[str, str]]:
    """Every command with the output below it, in the order of the page: each builds on those before."""
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def pattern_of(output: str) -> str:
    """Widths depend on names that differ: one space is as good as several."""
    lines = [r"\s+".join(_word(word) for word in line.split()) for line in output.splitlines()]
    return r"\s*\n\s*".join(lines)


def _word(word: str) -> str:
    return ".*?".join(re.escape(part) for part in word.split("…"))


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """An environment in which `holdfast` is this one."""
    script = tmp_path / "holdfast"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m holdfast "$@"\n')
    script.chmod(0o755)
    return os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}


def test_the_examples_of_the_page_print_what_it_says(shell: dict[str, str]) -> None:
    with HoldfastBroker() as broker:
        for command, output in examples():
            if command.startswith("export "):
                name, _, value = command.removeprefix("export ").partition("=")
                shell[name] = value.replace(ADDRESS, broker.bootstrap)
                continue
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", command],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=60,
                check=False,
                env=shell,
            )
            said = done.stdout.replace(broker.bootstrap, ADDRESS)
            assert done.returncode == 0, (command, said)
            assert re.fullmatch(pattern_of(output), said.strip()), (command, said)


def test_the_page_names_every_command() -> None:
    for parser in leaves(build_parser()):
        *_, last = parser.prog.split()
        assert re.search(rf"`[^`\n]*\b{last}\b", PAGE), f"{parser.prog} is not in docs/cli.md"


def test_the_page_names_every_exit_code() -> None:
    codes = re.findall(r"^\| ([\d, ]+) \|", PAGE, re.MULTILINE)
    named = {int(code) for line in codes for code in line.split(",")}
    assert named == {EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED, EXIT_TERMINATED, 141}
