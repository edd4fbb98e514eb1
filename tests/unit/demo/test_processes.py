"""The processes of the demo: when they begin, and that none outlives it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.demo.processes import BEGIN, DemoFailed, Worker, read_journal
from tests.support.eventually import eventually
from tests.support.kafka_distribution import REPOSITORY

NOWHERE = {"bootstrap": "127.0.0.1:1", "topic": "t", "group": "g", "static": False, "session_ms": 6_000}


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    made = Worker("consumer", "c", tmp_path, NOWHERE)
    yield made
    made.kill()


@pytest.mark.parametrize(("said", "ends"), [(b"", True), (BEGIN, False)], ids=["nothing", "the word"])
def test_a_prepared_process_ends_with_the_demo_and_begins_with_the_word(
    tmp_path: Path, said: bytes, ends: bool
) -> None:
    # given
    journal = tmp_path / "c.jsonl"
    options = {**NOWHERE, "name": "c", "journal": str(journal)}
    process = subprocess.Popen(
        [sys.executable, "-m", "examples.demo.consumer", json.dumps(options)],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        # when
        assert process.stdin is not None and process.stderr is not None
        eventually(lambda: read_journal(journal), "its being ready")
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


def test_a_worker_is_ready_before_it_is_started_and_its_end_is_told(worker: Worker) -> None:
    # given
    worker.prepare()
    eventually(worker.is_ready, "a prepared worker")

    # when
    worker.tell_to_end()  # which it notes, and would heed if it had begun
    worker.start()

    # then
    with pytest.raises(DemoFailed, match="c has ended by itself"):
        eventually(worker.has_worked, "records, which nobody has")


def test_a_worker_that_is_started_again_has_to_be_ready_again(worker: Worker) -> None:
    worker.prepare()
    eventually(worker.is_ready, "a prepared worker")

    worker.kill()
    worker.prepare()

    eventually(worker.is_ready, "a prepared worker")
    assert len(read_journal(worker.journal)) == 2, "what it told in its former life does not count"
