"""The pauses of a broker, from its own log: it extends idle times by as much, so no test may count them."""

from __future__ import annotations

import re
import time
from datetime import datetime

from tests.support.holdfast_broker import HoldfastBroker

_PAUSE = re.compile(r"^(\S+ \S+) WARNING \S+: paused for (\d+) ms", re.MULTILINE)
_TIME = "%Y-%m-%d %H:%M:%S,%f"


def unpaused_s(broker: HoldfastBroker, began: float) -> float:
    """Seconds from `began`, a time of `time.monotonic`, until now, without those in which the broker was paused.

    The log has the end of each pause and its length. Only what is after `began` is subtracted, and where two overlap
    only once: neither a pause that a test has made before, nor one that is logged again, makes the time shorter.
    """
    ended = time.monotonic()
    to_monotonic = ended - time.time()
    paused, counted_until = 0.0, began
    for logged, length_ms in _PAUSE.findall(broker.log_text()):
        end = min(datetime.strptime(logged, _TIME).timestamp() + to_monotonic, ended)
        start = max(end - int(length_ms) / 1000, counted_until)
        if start < end:
            paused += end - start
            counted_until = end
    return ended - began - paused
