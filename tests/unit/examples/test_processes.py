"""The processes of the demo: when they begin, and that none outlives it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.demo.processes import START, TIMEOUT_S, DemoFailed, Worker, read_event_log, run_to_end, wait_for
from examples.demo.scenario import STATIC_SESSION_MS
from holdfast.broker.config.broker import BrokerConfig
from tests.support.eventually import eventually
from tests.support.kafka_distribution import REPOSITORY

NOWHERE = {"bootstrap": "127.0.0.1:1", "topic": "t", "group": "g", "static": False, "session_ms": 6_000}


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    made = Worker("consumer", "c", tmp_path, NOWHERE)
    yield made
    made.kill()


@pytest.mark.parametrize(("said", "ends"), [(b"", True), (START, False)], ids=["nothing", "the word"])
def test_a_prepared_process_ends_with_the_demo_and_begins_with_the_word(
    tmp_path: Path, said: bytes, ends: bool
) -> None:
    # given
    event_log = tmp_path / "c.jsonl"
    options = {**NOWHERE, "name": "c", "event_log": str(event_log)}
    process = subprocess.Popen(
        [sys.executable, "-m", "examples.demo.consumer", json.dumps(options)],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        # when
        assert process.stdin is not None and process.stderr is not None
        eventually(lambda: read_event_log(event_log), "its being ready")
        process.stdin.write(said)
        process.stdin.close()

        # then
        if ends:
            assert process.wait(30) == 0
        else:
            assert b"127.0.0.1:1" in process.stderr.readline(), "it looks for the broker"
            process.terminate()
            assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


def test_a_worker_is_ready_before_it_is_started_and_its_end_is_reported(worker: Worker) -> None:
    # given
    worker.prepare()
    eventually(worker.is_ready, "a prepared worker")

    # when
    worker.terminate()  # which it notes, and would heed if it had begun
    worker.start()

    # then
    with pytest.raises(DemoFailed, match="c has exited"):
        eventually(worker.has_worked, "records, which nobody has")


def test_a_worker_that_does_not_exit_ends_its_log_with_its_stacks(worker: Worker, tmp_path: Path) -> None:
    # given
    stuck = (
        "import signal, sys, time\n"
        "from examples.demo.processes import print_stacks_on_sigquit\n"
        "def never_ends():\n"
        "    print('up', flush=True)\n"
        "    time.sleep(600)\n"
        "print_stacks_on_sigquit()\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "never_ends()\n"
    )
    worker._command = [sys.executable, "-c", stuck]
    worker.prepare()
    log = tmp_path / "c.log"
    eventually(lambda: log.read_text() == "up\n", "a process that ignores SIGTERM")

    # when
    worker.terminate()
    with pytest.raises(DemoFailed, match=r"c to exit after 0\.2 s; its stacks are at the end of .*c\.log"):
        worker.await_exit(0.2)

    # then
    assert "in never_ends" in log.read_text()


def test_a_worker_that_is_started_again_has_to_be_ready_again(worker: Worker) -> None:
    worker.prepare()
    eventually(worker.is_ready, "a prepared worker")

    worker.kill()
    worker.prepare()

    eventually(worker.is_ready, "a prepared worker")
    assert len(read_event_log(worker.event_log)) == 2, "what it reported in its former life does not count"


def test_a_wait_prints_what_it_waits_for_until_it_happens(capsys: pytest.CaptureFixture[str]) -> None:
    looks = iter([None] * 5 + ["there"])

    assert wait_for(lambda: next(looks), "the end", progress_every_s=0.0) == "there"

    lines = capsys.readouterr().out.splitlines()
    assert lines and all(line.strip().startswith("still waiting for the end (") for line in lines)


def test_a_wait_in_vain_ends_in_a_sentence() -> None:
    with pytest.raises(DemoFailed, match=r"gave up waiting for the end after 0\.2 s"):
        wait_for(lambda: False, "the end", timeout_s=0.2)


def test_a_slow_command_is_awaited_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow = [sys.executable, "-c", "import time; time.sleep(0.5)"]

    run_to_end(slow, "a slow command", tmp_path / "log", progress_every_s=0.1)

    assert "still waiting for a slow command" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("program", "timeout_s", "said"),
    [
        ("raise SystemExit('no such group')", 60.0, "waited for it: no such group"),
        ("import time; time.sleep(600)", 0.5, r"gave up waiting for it after 0\.5 s"),
    ],
    ids=["fails", "does not end"],
)
def test_a_command_that_fails_or_does_not_end_is_a_sentence(
    tmp_path: Path, program: str, timeout_s: float, said: str
) -> None:
    with pytest.raises(DemoFailed, match=said):
        run_to_end([sys.executable, "-c", program], "it", tmp_path / "log", timeout_s=timeout_s)


def test_static_members_keep_their_sessions_longer_than_the_demo_waits() -> None:
    """And not longer than the broker lets them, which is half an hour: group.max.session.timeout.ms."""
    longest_ms = BrokerConfig().group_max_session_timeout_ms
    assert 2_000 * TIMEOUT_S < STATIC_SESSION_MS <= longest_ms
