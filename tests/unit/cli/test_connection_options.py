"""Which broker a command asks and with what settings; and that secrets stay where they are."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from holdfast.cli.connection_options import ENVIRONMENT, add_connection_options, client_settings
from holdfast.cli.errors import UsageError
from holdfast.cli.main import main


def options(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_connection_options(parser)
    return parser.parse_args(arguments)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)


def test_the_option_wins_over_the_file_and_the_file_over_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers = from-file:1\n")
    monkeypatch.setenv(ENVIRONMENT, "from-environment:1")
    given = ["--command-config", str(file)]
    assert client_settings(options())["bootstrap.servers"] == "from-environment:1"
    assert client_settings(options(*given))["bootstrap.servers"] == "from-file:1"
    assert client_settings(options(*given, "--bootstrap-server", "h:1"))["bootstrap.servers"] == "h:1"


def test_the_files_settings_reach_the_client(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_SSL\nsasl.password=p=w\nclient.id=me\n")
    found = client_settings(options("--command-config", str(file), "--bootstrap-server", "h:1"))
    assert found == {
        "security.protocol": "SASL_SSL",
        "sasl.password": "p=w",
        "client.id": "me",
        "bootstrap.servers": "h:1",
    }


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sasl.jaas.config=SECRET", "sasl.jaas.config is not supported: give sasl.username and sasl.password"),
        ("sasl.pasword=SECRET", "did you mean sasl.password?"),
        ("retry.backof.ms=SECRET", "unknown setting 'retry.backof.ms': did you mean 'retry.backoff.ms'?"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\nsasl.password=SECRET", "which no file can hold"),
    ],
)
def test_a_setting_that_cannot_be_is_named_without_its_value(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(line)
    with pytest.raises(UsageError) as refused:
        client_settings(options("--command-config", str(file), "--bootstrap-server", "h:1"))
    assert said in str(refused.value)
    assert str(file) in str(refused.value)
    assert "SECRET" not in str(refused.value)


def test_no_secret_is_printed_when_the_broker_cannot_be_had(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=u\nsasl.password=SECRET\n")
    code = main(
        ["groups", "list", "--bootstrap-server", "127.0.0.1:1", "--command-config", str(file), "--timeout", "0.3"]
    )
    said = capsys.readouterr()
    assert (code, said.out, said.err.count("\n")) == (1, "", 1)
    assert "127.0.0.1:1" in said.err
    assert "SECRET" not in said.err


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*nowhere: No such file"):
        client_settings(options("--command-config", str(tmp_path / "nowhere")))
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"cannot read .*binary: it is not UTF-8"):
        client_settings(options("--command-config", str(binary)))


def test_without_a_broker_it_is_said_how_to_name_one() -> None:
    with pytest.raises(UsageError, match="--bootstrap-server HOST:PORT, or set HOLDFAST_BOOTSTRAP_SERVERS"):
        client_settings(options())
