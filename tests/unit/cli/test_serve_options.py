"""`holdfast serve` on the command line: what it takes, what it says, and how it ends."""

import json
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast import Admin
from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.network.bound_listener import create_bound_listeners
from holdfast.cli.main import build_parser, main
from holdfast.cli.server_process import GC_THRESHOLDS
from holdfast.version import VERSION

HOLDFAST = (sys.executable, "-m", "holdfast.cli.main")

#: A broker that never comes to the end of its stop.
ENDLESS_STOP = """
import asyncio, sys
from holdfast.broker.server import Broker
from holdfast.cli.main import main
async def endless(broker): await asyncio.Event().wait()
Broker.stop = endless
sys.exit(main(sys.argv[1:]))
"""

GARBAGE_COLLECTOR = """
import gc, sys
from holdfast.broker.server import Broker
from holdfast.cli.main import main
async def report(broker): print(*gc.get_threshold(), gc.get_freeze_count(), flush=True)
Broker.stop = report
sys.exit(main(sys.argv[1:]))
"""

UNDER_SIGHUP = """
import signal, sys
signal.signal(signal.SIGHUP, signal.{handler})
from holdfast.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@contextmanager
def serving(*options: str, program: tuple[str, ...] = HOLDFAST) -> Iterator[subprocess.Popen[str]]:
    """`holdfast serve` on a free port, which is gone when the test is."""
    command = [*program, "serve", "--listen", "127.0.0.1:0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def port_of(process: subprocess.Popen[str]) -> int:
    """The port in the first line on stdout: it comes when the broker is ready."""
    assert process.stdout is not None
    line = process.stdout.readline()
    match = re.fullmatch(r"holdfast listening on 127\.0\.0\.1:(\d+)\n", line)
    assert match, line
    return int(match[1])


def end(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str, str]:
    process.send_signal(number)
    rest, errors = process.communicate(timeout=30)
    return process.returncode, rest, errors


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one sentence on stderr with which exit code 2 comes."""
    try:
        code = main(arguments)
    except SystemExit as exit_:  # argparse leaves this way
        code = int(exit_.code or 0)
    output = capsys.readouterr()
    assert (code, output.out) == (2, "")
    assert output.err.count("\n") == 1, output.err
    return output.err.strip()


# -- what it takes -----------------------------------------------------------------------------------------------------


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"holdfast {VERSION}\n")


def test_the_help_names_every_option_and_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for word in ("--listen", "127.0.0.1:9092", "--data", "./holdfast-data", "--config", "--set", "--log-level"):
        assert word in text


def test_listen_is_short_for_the_config_and_the_later_of_both_wins() -> None:
    options = build_parser().parse_args(
        ["serve", "--listen", "h:1", "--set", "num.partitions=2", "--listen", "[::1]:2"]
    )
    assert options.sets == ["listeners=PLAINTEXT://h:1", "num.partitions=2", "listeners=PLAINTEXT://[::1]:2"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "holdfast: the following arguments are required: COMMAND"),
        (["serv"], "there is no command 'serv'; did you mean 'serve'?"),
        (["serve", "--frob"], "unrecognized arguments: --frob"),
        (["serve", "--listen", "localhost"], "'localhost' is not HOST:PORT"),
        (["serve", "--listen", "localhost:70000"], "'localhost:70000' is not HOST:PORT"),
        (["serve", "--listen", "SSL://localhost:1"], "needs a certificate"),
        (["serve", "--set", "num.partitions"], "not of the form name=value"),
        (["serve", "--set", "num.partitons=1"], 'did you mean "num.partitions"?'),
        (["serve", "--set", "num.partitions=x"], "Invalid value x for configuration num.partitions"),
        (["serve", "--config", "nowhere.toml"], "cannot read the config file nowhere.toml: No such file or directory"),
        (["serve", "--log-level", "loud"], "invalid choice"),
        (["serve", "--data", ""], "it names no directory"),
    ],
)
def test_a_bad_option_is_one_sentence_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert said in refusal(capsys, *arguments)


# -- what cannot be had ------------------------------------------------------------------------------------------------


def failed(*options: str) -> str:
    """The one sentence on stderr of a broker that could not start."""
    ended = subprocess.run([*HOLDFAST, "serve", *options], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr
    assert ended.stderr.count("\n") == 1, ended.stderr
    return ended.stderr.strip()


def test_a_data_directory_that_cannot_be_made_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    sentence = failed("--listen", "127.0.0.1:0", "--data", str(file / "data"))
    assert str(file / "data") in sentence
    assert "Not a directory" in sentence


def test_a_port_in_use_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sentence = failed("--listen", f"127.0.0.1:{port}", "--data", str(tmp_path / "data"))
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in sentence


def test_a_data_directory_is_refused_until_the_broker_that_uses_it_is_killed(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with serving("--data", data) as first:
        port_of(first)
        assert data in failed("--listen", "127.0.0.1:0", "--data", data)
        end(first, signal.SIGKILL)
    with serving("--data", data) as second:
        port_of(second)


# -- how it lives and ends ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal_and_ends_with_exit_code_0(tmp_path: Path, number: signal.Signals) -> None:
    with serving("--data", str(tmp_path / "data")) as process:
        port = port_of(process)
        with socket.create_connection(("127.0.0.1", port), timeout=30):
            code, rest, errors = end(process, number)
    assert (code, rest) == (0, "")
    assert "Traceback" not in errors


def with_sighup(handler: str) -> tuple[str, ...]:
    """The program as it is started by one who has SIGHUP so."""
    return (sys.executable, "-c", UNDER_SIGHUP.format(handler=handler))


def test_a_hangup_stops_it_cleanly_as_well(tmp_path: Path) -> None:
    with serving("--data", str(tmp_path / "data"), program=with_sighup("SIG_DFL")) as process:
        port_of(process)
        code, _, errors = end(process, signal.SIGHUP)
    assert code == 0
    assert "stopped" in errors and "Traceback" not in errors


def test_under_nohup_a_hangup_does_not_stop_it(tmp_path: Path) -> None:
    with serving("--data", str(tmp_path / "data"), program=with_sighup("SIG_IGN")) as process:
        port = port_of(process)
        process.send_signal(signal.SIGHUP)
        with Admin({"bootstrap.servers": f"127.0.0.1:{port}"}) as admin:
            assert admin.list_topics() == []
            assert admin.list_groups() == []
        assert process.poll() is None
        code, _, _ = end(process, signal.SIGTERM)
    assert code == 0


def test_the_port_can_be_taken_again_at_once(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with serving("--data", data) as first:
        port = port_of(first)
        with socket.create_connection(("127.0.0.1", port), timeout=30):
            end(first, signal.SIGTERM)
    with serving("--listen", f"127.0.0.1:{port}", "--data", data) as second:
        assert port_of(second) == port


def test_a_second_interrupt_does_not_wait_for_the_clean_stop(tmp_path: Path) -> None:
    program = (sys.executable, "-c", ENDLESS_STOP)
    with serving("--data", str(tmp_path / "data"), program=program) as process:
        port_of(process)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while "stopping" not in (line := process.stderr.readline()):
            assert line, "ended at the first interrupt"
        code, _, _ = end(process, signal.SIGINT)
    assert code == 130


def test_the_garbage_collector_leaves_the_loaded_program_alone(tmp_path: Path) -> None:
    program = (sys.executable, "-c", GARBAGE_COLLECTOR)
    with serving("--data", str(tmp_path / "data"), program=program) as process:
        port_of(process)
        code, said, _ = end(process, signal.SIGTERM)
    *thresholds, frozen = map(int, said.split())
    assert (code, tuple(thresholds)) == (0, GC_THRESHOLDS)
    assert frozen > 10_000, "modules and classes alone are more than that"


class FakeBroker:
    """Says that it listens, and is asked to stop at once: no port of this machine is opened to the world for a test."""

    def __init__(self, config: BrokerConfig, data: Path) -> None:
        self.listeners = create_bound_listeners(config)
        self.authorizer = None

    async def start(self) -> None:
        signal.raise_signal(signal.SIGTERM)

    async def stop(self) -> None:
        pass


@pytest.mark.parametrize(
    ("host", "shown", "warnings"),
    [
        ("127.0.0.1", "127.0.0.1", 0),
        ("[::1]", "[::1]", 0),
        ("0.0.0.0", "0.0.0.0", 1),
        ("", "0.0.0.0", 1),
        ("h", "h", 1),
    ],
)
def test_a_listener_beyond_loopback_is_warned_about_and_one_on_loopback_is_not(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    host: str,
    shown: str,
    warnings: int,
) -> None:
    monkeypatch.setattr("holdfast.broker.server.Broker", FakeBroker)
    assert main(["serve", "--listen", f"{host}:9092"]) == 0
    assert capsys.readouterr().out == f"holdfast listening on {shown}:9092\n"
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warned) == warnings
    assert all(f"listening on {shown}:9092 without authentication" in message for message in warned)


def test_no_option_is_needed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("holdfast.broker.server.Broker", FakeBroker)
    assert main(["serve"]) == 0
    assert capsys.readouterr().out == "holdfast listening on 127.0.0.1:9092\n"


def test_level_and_format_of_the_log_stand_in_the_config_and_options_win(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text('[logging]\nlevel = "error"\nformat = "json"\n')
    arguments = ("--config", str(file), "--data", str(tmp_path / "data"))
    with serving(*arguments) as process:
        port_of(process)
        _, _, silent = end(process, signal.SIGTERM)
    with serving(*arguments, "--log-level", "info") as process:
        port_of(process)
        _, _, reported = end(process, signal.SIGTERM)
    assert silent == ""
    events = [json.loads(line)["event"] for line in reported.splitlines()]
    assert events == ["data opened", "listening", "stopping", "stopped"]


def test_logs_go_to_stderr_one_line_each_with_the_time_and_by_level(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with serving("--data", data, "--set", "num.io.threads=2") as process:
        port_of(process)
        _, rest, reported = end(process, signal.SIGTERM)
    with serving("--data", data, "--set", "num.io.threads=2", "--log-level", "warning") as process:
        port_of(process)
        _, _, silent = end(process, signal.SIGTERM)
    assert "without effect in Holdfast: num.io.threads" in reported
    assert all(
        re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ holdfast", line) for line in reported.splitlines()
    )
    assert (rest, silent) == ("", "")


@pytest.mark.skipif(not Path("/proc").exists(), reason="reads the limits of a process from /proc")
def test_it_may_open_as_many_files_as_the_system_allows_it(tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with serving("--data", str(tmp_path / "data")) as process:
        port_of(process)
        limits = Path(f"/proc/{process.pid}/limits").read_text()
    [line] = [line for line in limits.splitlines() if line.startswith("Max open files")]
    assert line.split()[3] == ("unlimited" if hard == resource.RLIM_INFINITY else str(hard))


def test_a_config_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text(f'[log]\ndirs = "{tmp_path / "from-file"}"\n')
    with serving("--config", str(file)) as process:
        port_of(process)
        end(process, signal.SIGTERM)
    assert (tmp_path / "from-file").is_dir()
