"""Measures the memory of one assignment: `python -m benchmarks.assignor_child <strategy> <pickled group>`.

Prints, in bytes, how much more memory it used at the peak of the assignment than before it had the group. This includes
the group itself, the memory of the assignor, and the result.
"""

from __future__ import annotations

import gc
import pickle
import sys
from pathlib import Path

from holdfast.assignors import assignor


def main() -> None:
    strategy, path = sys.argv[1:]
    before = _status("VmRSS")
    with open(path, "rb") as file:
        cluster, subscriptions = pickle.load(file)
    gc.collect()
    # The peak is measured from here on, because the memory for reading the file is not the assignor's.
    Path("/proc/self/clear_refs").write_text("5")
    answer = assignor(strategy).assign(cluster, subscriptions)
    print(_status("VmHWM") - before)
    del answer


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    main()
