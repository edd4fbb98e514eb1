"""The tests are tested: every seeded bug is found by the coordinator's suite, which passes without them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.mutation.run import ROOT, all_bugs

pytestmark = [pytest.mark.real, pytest.mark.timeout(1_200)]


def test_every_seeded_bug_is_found() -> None:
    script = [sys.executable, str(ROOT / "scripts" / "seeded-bugs")]

    done = subprocess.run(script, capture_output=True, text=True, timeout=1_100, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("control: the unchanged copy passes")
    assert f"{len(all_bugs())} of {len(all_bugs())} seeded bugs found" in done.stdout
