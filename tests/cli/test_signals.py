"""How commands end: signals, pipes that break, disks that are full, brokers that are not there."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest

from holdfast import Admin
from holdfast.cli import produce as cli_produce
from tests.cli.conftest import Cli
from tests.cli.processes import HOLDFAST, PATIENCE_S, ended, line_of, lines_until, running
from tests.client_compat.servers import Server
from tests.groups.topics import committed, make_topic, produce
from tests.holdfast_client.consumers import Watched, poll_until, watching
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker

NEEDS_FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_member_that_is_stopped_commits_what_it_has_printed(
    server: Server, topic: str, group: str, number: signal.Signals, code: int
) -> None:
    make_topic(server, topic, 1)
    produce(server, topic, 10, partitions=1)
    to = ["--topic", topic, "--bootstrap-server", server.bootstrap, "--group", group, "--from-beginning"]
    with running("consume", *to) as process:
        for expected in range(10):
            assert line_of(process) == b"%d\n" % expected
        assert ended(process, number) == (code, b"", b"")
    assert committed(server, group, topic) == {0: 10}


def test_a_member_with_closed_output_ends_quietly_and_commits_nothing_of_it(
    quick_holdfast: HoldfastBroker, topic: str, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make_topic(quick_holdfast, topic, 1)
    cli = Cli(quick_holdfast.bootstrap, capsys)
    to = ["--topic", topic, "--bootstrap-server", quick_holdfast.bootstrap, "--group", group, "--from-beginning"]
    with running("consume", *to) as process:
        assert process.stdout is not None
        process.stdout.close()

        def is_member() -> bool:
            code, out, _ = cli.run("groups", "describe", "--group", group, "--members", "--json")
            return code == 0 and topic in out

        eventually(is_member, "it has the partition")
        produce(quick_holdfast, topic, 10, partitions=1)
        assert process.wait(PATIENCE_S) == 141
        assert process.stderr is not None and process.stderr.read() == b""
    assert committed(quick_holdfast, group, topic).get(0, 0) == 0


def test_a_pipe_that_breaks_is_quiet(quick_holdfast: HoldfastBroker, topic: str) -> None:
    make_topic(quick_holdfast, topic, 1)
    produce(quick_holdfast, topic, 50_000, partitions=1)
    command = " ".join([*HOLDFAST, "consume", "--topic", topic, "--from-beginning", "--bootstrap-server"])
    script = f"{command} {quick_holdfast.bootstrap} | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, timeout=PATIENCE_S, check=True)
    assert (done.stdout, done.stderr) == (b"0\n141\n", b"")


def test_a_producer_that_is_interrupted_sends_what_it_has_read(quick_holdfast: HoldfastBroker, topic: str) -> None:
    make_topic(quick_holdfast, topic, 1)
    with running("produce", "--topic", topic, "--bootstrap-server", quick_holdfast.bootstrap) as process:
        assert process.stdin is not None
        process.stdin.write(b"1\n2\n3\nhalf a li")
        process.stdin.flush()
        eventually(lambda: end_of(quick_holdfast, topic) == 3, "three records")
        process.send_signal(signal.SIGINT)  # while it waits for the rest of the line
        assert process.wait(PATIENCE_S) == 130
        assert process.stderr is not None and process.stderr.read() == f"3 records to {topic}\n".encode()
    assert end_of(quick_holdfast, topic) == 3


class SignalledFlush:
    """A producer that hears a signal each time it is about to wait for the broker, as often as it is asked to."""

    def __init__(self, producer: Any, number: signal.Signals, times: int) -> None:
        self._producer = producer
        self._number = number
        self._left = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def flush(self, timeout_s: float) -> int:
        if self._left:
            self._left -= 1
            signal.raise_signal(self._number)
            return 1
        return int(self._producer.flush(timeout_s))


@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_producer_that_is_stopped_when_all_is_read_waits_once_for_what_it_has_sent(
    quick_holdfast: HoldfastBroker,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    code: int,
    times: int,
) -> None:
    make_topic(quick_holdfast, topic, 1)
    (tmp_path / "lines").write_text("1\n2\n")
    make = cli_produce._producer
    monkeypatch.setattr(cli_produce, "_producer", lambda *given: SignalledFlush(make(*given), number, times))

    words = ("produce", str(tmp_path / "lines"), "--topic", topic, "--set", "linger.ms=60000", "--timeout", "120")
    ended_with, _, errors = Cli(quick_holdfast.bootstrap, capsys).run(*words)

    stored = 2 if times == 1 else 0
    assert (ended_with, errors) == (code, f"{stored} records to {topic}\n")


def end_of(server: Server, topic: str) -> int | None:
    with Admin({"bootstrap.servers": server.bootstrap}) as admin:
        return admin.describe_topics([topic])[0].partitions[0].latest


@pytest.mark.parametrize(
    ("words", "last"),
    [
        (["groups", "watch", "--interval", "0.2"], b"Empty, 0 members"),
        (["groups", "history", "--follow"], b"became empty"),
    ],
    ids=["watch", "follow"],
)
def test_what_follows_ends_quietly_with_ctrl_c(
    quick_holdfast: HoldfastBroker, topic: str, group: str, words: list[str], last: bytes
) -> None:
    make_topic(quick_holdfast, topic, 1)
    member = Watched(quick_holdfast, group).subscribe(topic)
    with watching(member):
        poll_until(lambda: member.partitions, "a member, and with it a ledger", member)
    with running(*words, "--bootstrap-server", quick_holdfast.bootstrap, "--group", group) as process:
        lines_until(process, last)
        assert ended(process, signal.SIGINT) == (130, b"", b"")


@NEEDS_FULL
def test_a_full_disk_is_one_sentence(quick_holdfast: HoldfastBroker) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*HOLDFAST, "topics", "list", "--bootstrap-server", quick_holdfast.bootstrap],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=PATIENCE_S,
            check=False,
        )
    said = b"holdfast topics list: the output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)


def run_with(redirection: str, *words: str) -> tuple[int, bytes, bytes]:
    done = subprocess.run(
        ["bash", "-c", f'exec "$@" {redirection}', "bash", *HOLDFAST, *words],
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_closed_stdout_is_nowhere_to_write_to(quick_holdfast: HoldfastBroker, topic: str) -> None:
    make_topic(quick_holdfast, topic, 1)
    produce(quick_holdfast, topic, 1, partitions=1)
    to = ("--bootstrap-server", quick_holdfast.bootstrap)
    assert run_with(">&-", "topics", "list", *to) == (0, b"", b"")
    reading = ("consume", "--topic", topic, "--from-beginning", "--max-messages", "1", *to)
    assert run_with(">&-", *reading) == (0, b"", b"")
    assert run_with("", *reading) == (0, b"0\n", b"")


def test_a_closed_stdin_has_no_lines(quick_holdfast: HoldfastBroker, topic: str) -> None:
    make_topic(quick_holdfast, topic, 1)
    words = ("produce", "--topic", topic, "--bootstrap-server", quick_holdfast.bootstrap)
    assert run_with("<&-", *words) == (0, b"", f"0 records to {topic}\n".encode())


def test_what_a_closed_stderr_would_say_is_no_output() -> None:
    words = ("topics", "list", "--bootstrap-server", "127.0.0.1:1", "--timeout", "0.2")
    assert run_with("2>&-", *words) == (1, b"", b"")
    code, out, errors = run_with("", *words)
    assert (code, out) == (1, b"") and b"Connection refused" in errors


@pytest.mark.parametrize("redirection", [">&-", pytest.param(">/dev/full", marks=NEEDS_FULL), "<&- >&-"])
def test_a_broker_serves_and_stops_whatever_its_stdout_is(tmp_path: Path, redirection: str) -> None:
    words = ("serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"))
    command = ["bash", "-c", f'exec "$@" {redirection}', "bash", *HOLDFAST, *words]
    # Unbuffered: what is read with the line that has the port would be missing from what is read at the end.
    with subprocess.Popen(command, stderr=subprocess.PIPE, bufsize=0) as process:
        try:
            assert process.stderr is not None
            port = port_in_log(process.stderr)
            with Admin({"bootstrap.servers": f"127.0.0.1:{port}"}) as admin:
                assert admin.list_topics() == []
            code, _, errors = ended(process, signal.SIGTERM)
        finally:
            process.kill()
    assert code == 0, errors
    assert b"Traceback" not in errors and b"Exception ignored" not in errors
    assert (b"stdout cannot be written (No space left on device)" in errors) == ("full" in redirection), errors


def port_in_log(log: IO[bytes]) -> int:
    for line in log:
        if found := re.search(rb"listening host=\S+ port=(\d+)", line):
            return int(found[1])
    raise AssertionError("it ended before it was listening")


@pytest.mark.parametrize("words", [[], ["--group", "g"]], ids=["alone", "member"])
def test_a_lost_broker_is_not_taken_for_the_end_of_the_records(words: list[str]) -> None:
    with HoldfastBroker() as broker:
        make_topic(broker, "orders", 1)
        produce(broker, "orders", 1, partitions=1)
        to = ["--topic", "orders", "--bootstrap-server", broker.bootstrap]
        # Long enough for the first record to come on a busy machine.
        with running("consume", *to, "--from-beginning", "--timeout", "5", *words) as process:
            assert line_of(process) == b"0\n"
            broker.kill()
            code, rest, errors = ended(process)
    *warnings, last = errors.splitlines()
    assert (code, rest) == (1, b"")
    assert last.startswith(b"holdfast consume: no broker can be reached: ")
    assert bool(warnings) == bool(words), "a member says what it tries again"
    assert all(line.startswith(b"holdfast consume: ") for line in warnings), warnings


def test_a_broker_lost_before_the_group_has_formed_is_not_waited_for() -> None:
    with HoldfastBroker({"group.initial.rebalance.delay.ms": "300000"}) as broker:
        make_topic(broker, "orders", 1)
        to = ["--topic", "orders", "--bootstrap-server", broker.bootstrap, "--group", "g", "--timeout", "1"]
        with running("consume", *to) as process, Admin({"bootstrap.servers": broker.bootstrap}) as admin:
            eventually(lambda: admin.describe_group("g").state == "PreparingRebalance", "a group that waits for others")
            broker.kill()
            code, rest, errors = ended(process)
    assert (code, rest) == (1, b"")
    assert errors.splitlines()[-1].startswith(b"holdfast consume: no broker can be reached: ")


def test_a_group_that_takes_longer_than_the_time_out_to_form_is_waited_for(topic: str) -> None:
    with HoldfastBroker({"group.initial.rebalance.delay.ms": "8000"}) as broker:
        make_topic(broker, topic, 1)
        produce(broker, topic, 1, partitions=1)
        to = ["--topic", topic, "--bootstrap-server", broker.bootstrap, "--group", "g", "--timeout", "5"]
        with running("consume", *to, "--from-beginning") as process:
            assert ended(process) == (0, b"0\n", b"")


@pytest.mark.parametrize(
    "words",
    [
        ["groups", "list"],
        ["groups", "describe", "--group", "g"],
        ["topics", "create", "--topic", "t"],
        ["groups", "watch", "--group", "g"],
        ["groups", "history", "--follow"],
    ],
    ids=" ".join,
)
def test_a_broker_that_is_not_there_is_one_sentence(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    sentence = Cli("127.0.0.1:1", capsys).refused(*words, "--timeout", "0.2")
    assert "127.0.0.1:1: cannot connect: Connection refused" in sentence


def test_python_without_confluent_kafka_reports_what_to_install(quick_holdfast: HoldfastBroker, topic: str) -> None:
    make_topic(quick_holdfast, topic, 1)
    program = "import sys; sys.modules['confluent_kafka'] = None; from holdfast.cli.main import main; sys.exit(main())"
    to = ["--topic", topic, "--bootstrap-server", quick_holdfast.bootstrap]
    for words in (["produce", "/dev/null"], ["consume"], ["consume", "--group", "g"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *words, *to],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
        assert "pip install 'holdfast[client]'" in done.stderr
    # and the rest of the command line works without it
    done = subprocess.run(
        [sys.executable, "-c", program, "topics", "list", "--bootstrap-server", quick_holdfast.bootstrap],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, topic in done.stdout) == (0, True)


def test_watching_survives_a_restart_of_the_broker() -> None:
    with HoldfastBroker() as broker:
        make_topic(broker, "orders", 1)
        produce(broker, "orders", 1, partitions=1)
        to = ["--bootstrap-server", broker.bootstrap]
        with running("groups", "watch", "--group", "g", "--interval", "0.2", *to) as process:
            assert b"Dead, 0 members" in line_of(process)
            broker.restart()
            with running("consume", "--topic", "orders", "--group", "g", "--from-beginning", *to) as member:
                line_of(member)
                lines_until(process, b"Stable, 1 member")
