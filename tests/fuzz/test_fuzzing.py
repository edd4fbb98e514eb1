"""A minute of real fuzzing, and the proof that it would find something."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import packed_corpus
from tests.fuzz.campaign import fuzz
from tests.fuzz.targets import PLANTED, TARGETS, Target

pytestmark = pytest.mark.real

SECONDS = 30


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
def test_half_a_minute_finds_nothing(target: Target, tmp_path: Path) -> None:
    inputs = packed_corpus.read(target.name)

    result = fuzz(target, SECONDS, inputs, tmp_path)

    assert result.finding is None, result.last_words
    assert result.executions > len(inputs), result.last_words
    assert result.branches > 500, result.summary


def test_a_planted_fault_is_found(tmp_path: Path) -> None:
    result = fuzz(PLANTED, SECONDS, {}, tmp_path)

    assert result.finding is not None and result.finding.startswith(b"hold"), result.last_words
    assert "the planted fault" in result.last_words
