"""The process that atheris runs in: our code counts its branches, libFuzzer chooses what to try next.

    python -m tests.fuzz.worker <target> <libFuzzer's options and directories>

It ends when libFuzzer ends, and never returns; `python -m tests.fuzz` starts it.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import atheris

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

SLOWED_TIMES: Final = 6.0
"""What counting branches costs, with room for it; the corpus is replayed at the real pace."""
GROWTH_EVERY: Final = 2_000
"""An input in so many is repeated to see whether memory grows."""


def _instrumented_target(name: str) -> Target:
    with atheris.instrument_imports(include=["holdfast", "tests.fuzz.planted_fault"]):
        if name == "decoding":
            codegen_source: Any = importlib.import_module("holdfast.wire.codegen_source")
            _count_in_decoders(codegen_source.Source)
        targets: Any = importlib.import_module("tests.fuzz.targets")
    target: Target = {**targets.TARGETS, targets.PLANTED.name: targets.PLANTED}[name]
    return target


def _count_in_decoders(source: Any) -> None:
    """Decoders are made at run time; without this the fuzzer would see one branch for all that they do.

    It takes some 30 ms for each, in all a quarter of a minute, and is spent where they are what is tested.
    """
    compiled: Callable[[Any, str], Any] = source.compile

    def counting(self: Any, function: str) -> Any:
        made = compiled(self, function)
        return atheris.instrument_func(made) if function == "decode" else made

    source.compile = counting


class _Run:
    def __init__(self, target: Target) -> None:
        self._target = target
        self._count = 0

    def __call__(self, data: bytes) -> None:
        self._count += 1
        self._target.check(data, slowed=SLOWED_TIMES)
        if self._count % GROWTH_EVERY == 0:
            self._target.check_growth(data)

    def mutate(self, data: bytes, max_size: int, seed: int) -> bytes:
        return self._target.mutate(data, max_size, seed, atheris.Mutate)


def main() -> None:
    logging.disable(logging.CRITICAL)
    run = _Run(_instrumented_target(sys.argv[1]))
    atheris.Setup([sys.argv[0], *sys.argv[2:]], run, custom_mutator=run.mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
