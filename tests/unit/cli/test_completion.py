"""Shells complete what the parser knows. bash is run; of the others the script is looked at."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from holdfast.cli.main import main


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> str:
    assert main(["completion", request.param]) == 0
    return capsys.readouterr().out


def completed(script: str, directory: Path, *words: str) -> list[str]:
    """What bash offers for the last of the words."""
    ask = 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _holdfast; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", f"{script}\n{ask}", "bash", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=directory,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_bash_completes_commands_options_choices_and_files(script: str, tmp_path: Path) -> None:
    (tmp_path / "client.properties").touch()
    offers = {
        ("holdfast", "gr"): ["groups"],
        ("holdfast", "groups", "re"): ["remove-members", "reset-offsets"],
        ("holdfast", "groups", "add"): ["add-members"],
        ("holdfast", "groups", "c"): ["cancel-registration", "configure"],
        ("holdfast", "groups", "add-members", "--wait"): ["--wait-ms"],
        ("holdfast", "groups", "configure", "--st"): ["--standby-takeover-ms"],
        ("holdfast", "groups", "remove-members", "--inst"): ["--instance-ids", "--instance-prefix"],
        ("holdfast", "groups", "describe", "--members", "--verb"): ["--verbose"],
        ("holdfast", "topics", "add-partitions", "--par"): ["--partitions"],
        ("holdfast", "serve", "--log-level", "w"): ["warning"],
        ("holdfast", "gateway", "d"): ["doctor"],
        ("holdfast", "gateway", "--adv"): ["--advertise"],
        ("holdfast", "gateway", "--kafka", "h:1", "--kafka-config", "cl"): ["client.properties"],
        ("holdfast", "gateway", "doctor", "--kafka-"): ["--kafka-config", "--kafka-set"],
        ("holdfast", "groups", "list", "--command-config", "cl"): ["client.properties"],
        ("holdfast", "produce", "--topic", "t", "cl"): ["client.properties"],
        ("holdfast", "completion", ""): ["bash", "zsh", "fish", "--help"],
        ("holdfast", "groups", "describe", "--group", ""): [],
        ("holdfast", "nonsense", "gr"): ["groups"],
    }
    assert {words: completed(script, tmp_path, *words) for words in offers} == offers


@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_bash_knows_the_function_as_the_completion_of_holdfast(script: str, tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", f"{script}\ncomplete -p holdfast"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout == "complete -F _holdfast holdfast\n"


@pytest.mark.parametrize("script", ["zsh"], indirect=True)
def test_the_script_for_zsh_has_every_command_and_does_not_touch_its_path(script: str) -> None:
    assert script.startswith("#compdef holdfast\n")
    assert '"holdfast groups reset-offsets") compadd -- --help --group --topic' in script
    assert '"holdfast serve --log-level") compadd -- debug info warning error; return ;;' in script
    assert "path=" not in script, "an array of zsh's own"


@pytest.mark.parametrize("script", ["fish"], indirect=True)
def test_the_script_for_fish_has_every_command(script: str) -> None:
    assert "-n '__fish_seen_subcommand_from groups; and __fish_seen_subcommand_from watch' -l interval" in script
    assert (
        "-l log-level -d 'minimum level of log lines on stderr (default: info)' -xa 'debug info warning error'"
        in script
    )
    assert "-l command-config -d 'a file of name=value lines with librdkafka\\'s names, for TLS" in script
    assert all(line.startswith(("complete -c holdfast ", "#")) for line in script.splitlines())
