"""The machine is measured only when it is quiet, and the wait for that has an end."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.quiet import QUIET_LOAD, Busy, await_quiet, busy_seconds, own_seconds
from benchmarks.results import REPOSITORY

SPIN = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
STARTS_ONE_AND_ENDS = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {SPIN!r}])"
COUNTS = f"""
import json, subprocess, sys, time
from benchmarks.quiet import OtherProcesses, own_seconds

others, before = OtherProcesses(), own_seconds()
subprocess.run([sys.executable, "-c", {STARTS_ONE_AND_ENDS!r}], check=True)
deadline, seen = time.monotonic() + 20, []
while own_seconds() - before < 0.3 and time.monotonic() < deadline:
    seen.append(own_seconds() - before)
    time.sleep(0.02)
time.sleep(0.2)
print(json.dumps(dict(seen=seen, in_the_end=own_seconds() - before)))
"""


def test_waits_until_the_load_is_below_the_limit() -> None:
    loads = iter([2.0, QUIET_LOAD, 0.49])
    said: list[str] = []

    assert await_quiet(said.append, load=lambda: next(loads), pause=lambda _: None) == 0.49
    assert len(said) == 2
    assert "load average 2.0" in said[0]


def test_gives_up_when_its_patience_is_over() -> None:
    with pytest.raises(Busy, match=r"the load average is 3\.0 after 20 s"):
        await_quiet(lambda _: None, patience_s=20, load=lambda: 3.0, pause=lambda _: None)


def test_idle_time_waiting_for_the_disk_and_interrupts_are_no_work(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 10 200 99999 5000 1 2 3 50 5\ncpu0 1 1 1 1 1 1 1 1 1 1\n")

    assert busy_seconds(stat) == pytest.approx(3.13)


def test_the_cpu_time_of_children_is_our_own() -> None:
    own, busy = own_seconds(), busy_seconds()
    subprocess.run([sys.executable, "-c", SPIN], check=True, timeout=60)

    assert own_seconds() - own >= 0.3
    assert busy_seconds() - busy >= 0.25


def test_the_cpu_time_of_processes_whose_parent_has_ended_is_our_own() -> None:
    """As Spark's JVM and its Python workers, whose parents do not wait for them. In a process of its own, because it
    adopts the orphans."""
    done = subprocess.run([sys.executable, "-c", COUNTS], check=True, timeout=60, capture_output=True, cwd=REPOSITORY)
    counted = json.loads(done.stdout)

    assert counted["in_the_end"] >= 0.3, "also after it has ended"
    assert any(0 < seconds < 0.3 for seconds in counted["seen"]), "and while it runs"
