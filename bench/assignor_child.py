"""One assignment in a process of its own, for its memory: `python -m bench.assignor_child <strategy> <pickled group>`.

Prints, in bytes, how much more it held at the peak of the assignment than before it was told of the group: the group
itself, what the assignor needs on its way, and the answer.
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
    # What reading the file took at its peak is not the assignor's: the peak is counted from here on.
    Path("/proc/self/clear_refs").write_text("5")
    answer = assignor(strategy).assign(cluster, subscriptions)
    print(_status("VmHWM") - before)
    del answer


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    main()
