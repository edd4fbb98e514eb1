"""Both servers, names that no other test uses, and the command as it is run in this process."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.main import main
from tests.client_compat.servers import Server
from tests.support.quick_brokers import server

__all__ = ["server"]


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


class Cli:
    """`holdfast …` against one server, without the second that a process of its own takes."""

    def __init__(self, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.bootstrap = bootstrap
        self._connection = ["--bootstrap-server", bootstrap]
        self._capsys = capsys

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        self._capsys.readouterr()
        code = main([*arguments, *self._connection])
        said = self._capsys.readouterr()
        assert not [line for line in said.out.splitlines() if line.endswith(" ")], "a line ends in spaces"
        return code, said.out, said.err

    def done(self, *arguments: str) -> str:
        """The stdout of what must succeed without a complaint."""
        code, out, errors = self.run(*arguments)
        assert (code, errors) == (0, ""), (code, errors, out)
        return out

    def table(self, *arguments: str) -> list[dict[str, str]]:
        header, *rows = self.done(*arguments).splitlines()
        names = header.split()
        return [dict(zip(names, row.split(), strict=True)) for row in rows]

    def json(self, *arguments: str) -> Any:
        return json.loads(self.done(*arguments, "--json"))

    def refused(self, *arguments: str) -> str:
        """The one sentence of what must fail, with nothing on stdout."""
        code, out, errors = self.run(*arguments)
        assert (code, out, errors.count("\n")) == (1, "", 1), (code, out, errors)
        return errors.strip()


class UserCli(Cli):
    """The same for one who is known by a password: all that the server has to know of the user is in a file."""

    def __init__(self, settings: Mapping[str, str], directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(settings["bootstrap.servers"], capsys)
        self._password = settings["sasl.password"]
        file = directory / f"{settings['sasl.username']}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._connection = ["--command-config", str(file)]

    def run(self, *arguments: str) -> tuple[int, str, str]:
        code, out, errors = super().run(*arguments)
        assert self._password not in out + errors
        return code, out, errors


@pytest.fixture
def cli(server: Server, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(server.bootstrap, capsys)
