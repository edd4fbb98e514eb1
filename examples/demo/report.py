"""The output of the demo: a table, `report.json`, and pictures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from examples.demo.collect_figures import Figures
from examples.demo.figures import DELAY_MS

_ROWS: Final = (
    ("members restarted, one by kill -9", "restarts"),
    ("rebalances", "rebalances"),
    ("partitions moved", "partitions_moved"),
    (f"records delayed by more than {DELAY_MS // 1000} s", f"records_delayed_over_{DELAY_MS}_ms"),
    ("  of members that were not restarted", "of_these_of_members_that_were_not_restarted"),
    ("bytes of state loaded", "bytes_of_state_loaded"),
    ("records lost", "records_lost"),
    ("records processed twice", "records_duplicated"),
    ("rebalances for 3 new members", "rebalances_by_the_scale_up"),
)


def unexpected(halves: Sequence[Figures]) -> list[str]:
    """Unexpected figures. The control must show the cost that static members avoid."""
    wrong = []
    for half in halves:
        figures = half.figures()
        kind = "static" if half.static else "dynamic"
        expected = {"records_lost": figures["records_lost"] == 0}
        if half.static:
            expected |= {
                name: figures[name] == 0
                for name in ("rebalances", "partitions_moved", "bytes_of_state_loaded", "records_duplicated")
            }
            expected["rebalances_by_the_scale_up"] = half.scale_up_rebalances == 1
        else:
            expected |= {
                name: figures[name] > 0 for name in ("rebalances", "partitions_moved", "bytes_of_state_loaded")
            }
            expected["rebalances_by_the_scale_up"] = half.scale_up_rebalances > 1
        wrong += [f"{kind}: {name} is {figures[name]}" for name, holds in expected.items() if not holds]
    return wrong


def print_table(halves: Sequence[Figures]) -> None:
    titles = ["static, registered" if half.static else "dynamic (control)" for half in halves]
    widest = max(len(what) for what, _ in _ROWS)
    print(" " * widest, *(f"{title:>20}" for title in titles))
    for what, name in _ROWS:
        print(f"{what:<{widest}}", *(f"{half.figures()[name]:>20,}" for half in halves))
    print("While a static member restarts, only the records of its own partitions wait.")


def write_report(path: Path, halves: Sequence[Figures], seconds: float, wrong: Sequence[str]) -> None:
    report = {
        "seconds": round(seconds, 1),
        "as_expected": not wrong,
        "complaints": list(wrong),
        **{"static" if half.static else "dynamic": half.figures() for half in halves},
    }
    path.write_text(json.dumps(report, indent=2) + "\n")
