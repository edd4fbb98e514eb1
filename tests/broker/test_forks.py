"""A process that is forked has what it needs. One that had to import it would do the same, ten times as slowly."""

from __future__ import annotations

import sys
from multiprocessing.connection import Connection

from tests.support.forks import FORKS, IMPORTED


def report(parent: Connection) -> None:
    parent.send(sorted(sys.modules))


def test_a_fork_finds_everything_imported() -> None:
    ours, theirs = FORKS.Pipe()
    fork = FORKS.Process(target=report, args=(theirs,))

    fork.start()

    assert ours.poll(30)
    assert set(IMPORTED) - set(ours.recv()) == set()
    fork.join()
