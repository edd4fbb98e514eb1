"""Every input that ever taught us something, at the real pace: no crash, no stall, nothing left behind."""

from __future__ import annotations

import random

import pytest

from tests.fuzz import packed_corpus
from tests.fuzz.coordinator_runs import Act, parse
from tests.fuzz.decoding import Kind
from tests.fuzz.stall_and_leak_checks import check_growth
from tests.fuzz.targets import COORDINATOR, DECODING, TARGETS, Target

MAX_FILE_BYTES = 250_000
SOME = 12
"""Inputs of the corpus that are repeated again and again, all of them on one broker."""

targets = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())


@targets
def test_the_corpus_is_read_without_a_crash_or_a_stall(target: Target) -> None:
    for name, data in packed_corpus.read(target.name).items():
        try:
            target.check(data)
        except Exception as error:
            raise AssertionError(f"{target.name}: {name}: {error}") from error


@targets
def test_the_corpus_over_and_over_leaves_nothing_behind(target: Target) -> None:
    inputs = list(packed_corpus.read(target.name).values())
    run = target.again_and_again()

    def all_of_them() -> None:
        for data in random.Random(1).sample(inputs, min(len(inputs), SOME)):
            run(data)

    check_growth(all_of_them)


@targets
def test_what_once_broke_something_leaves_nothing_behind(target: Target) -> None:
    for name, data in packed_corpus.read(target.name).items():
        if packed_corpus.is_finding(name, data):
            target.check_growth(data)


@targets
def test_the_corpus_stays_small(target: Target) -> None:
    assert packed_corpus.file_of(target.name).stat().st_size < MAX_FILE_BYTES


def test_the_corpus_has_something_for_every_decoder() -> None:
    kinds = {Kind(data[0] % len(Kind)) for data in packed_corpus.read(DECODING.name).values() if data}

    assert kinds == set(Kind)


def test_the_corpus_has_every_kind_of_step() -> None:
    acts = {step.act for data in packed_corpus.read(COORDINATOR.name).values() for step in parse(data)}

    assert acts == set(Act)


@targets
def test_the_seeds_are_good(target: Target) -> None:
    for data in target.seeds():
        assert len(data) <= target.max_bytes
        target.check(data)
