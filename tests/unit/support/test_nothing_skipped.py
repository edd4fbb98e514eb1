"""What is skipped for a missing program is no part of `make test`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.kafka_distribution import REPOSITORY

TESTS = """
import pytest

def test_skipped_for_a_program():
    pytest.skip("needs kcat: it is missing")

@pytest.mark.skipif(True, reason="needs a C compiler")
def test_marked_for_a_program():
    pass

@pytest.mark.real
def test_real():
    pytest.skip("needs kcat: it is missing")

def test_of_the_machine():
    pytest.skip("this machine has no IPv6")
"""


def test_a_skip_for_a_program_is_a_failure_unless_the_test_is_real(tmp_path: Path) -> None:
    (tmp_path / "test_these.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = real: needs a real part\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.nothing_skipped", "-rA", str(tmp_path)]

    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)

    assert re.search(r"FAILED \S*test_skipped_for_a_program", done.stdout), done.stdout
    assert re.search(r"ERROR \S*test_marked_for_a_program", done.stdout), done.stdout
    assert "1 failed, 2 skipped, 1 error" in done.stdout
