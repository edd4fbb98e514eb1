"""The two targets: what runs an input, what changes it, where the corpus begins, and what it may cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.fuzz import coordinator_runs, decoding, mutation, planted_fault, seeds
from tests.fuzz.mutation import BareMutation
from tests.fuzz.stall_and_leak_checks import Pace, check_growth, run_in_pace


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    run: Callable[[bytes], None]
    mutate: Callable[[bytes, int, int, BareMutation], bytes]
    seeds: Callable[[], list[bytes]]
    again_and_again: Callable[[], Callable[[bytes], None]]
    """Makes what runs inputs one after the other on the same state, so that what stays behind adds up."""
    pace: Pace
    max_bytes: int

    def check(self, data: bytes, *, slowed: float = 1.0) -> None:
        """Runs an input; whatever it raises is a finding."""
        run_in_pace(self.run, data, self.pace.slowed(slowed))

    def check_growth(self, data: bytes) -> None:
        run = self.again_and_again()
        check_growth(lambda: run(data))


DECODING: Final = Target(
    "decoding",
    decoding.run,
    mutation.mutate_decoding,
    seeds.for_decoding,
    lambda: decoding.run,
    Pace(seconds=0.010, seconds_per_byte=10e-6),
    max_bytes=4_096,
)
COORDINATOR: Final = Target(
    "coordinator",
    coordinator_runs.run,
    mutation.mutate_run,
    seeds.for_coordinator_runs,
    lambda: coordinator_runs.CoordinatorRun().execute,
    Pace(seconds=0.050, seconds_per_byte=20e-6),
    max_bytes=3_072,
)
TARGETS: Final = {target.name: target for target in (DECODING, COORDINATOR)}

PLANTED: Final = Target(
    "planted",
    planted_fault.run,
    lambda data, max_size, _seed, bare: bare(data, max_size),
    list,
    lambda: planted_fault.run,
    DECODING.pace,
    max_bytes=64,
)
"""Not a target but a control: the fuzzer must find what is in it."""
