"""Writes docs/group-states.md and its diagram from the coordinator's table: `python scripts/render_group_states.py`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from holdfast.coordinator.classic.state_machine import OUTCOMES, PREDECESSORS, GroupState

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = DOCS / "group-states.md"
DIAGRAM = DOCS / "assets" / "group-states.svg"

INTRODUCTION = """\
# Group states

This page is generated from the table in `src/holdfast/coordinator/classic/state_machine.py` by
`scripts/render_group_states.py`.

A new group is Empty. When a member joins, the coordinator starts a rebalance. In PreparingRebalance it collects
JoinGroup requests until every member has sent one or the rebalance timeout has elapsed. It then starts a new
generation. In CompletingRebalance all members wait for the leader's assignment. When the assignment is stored, the
group is Stable. It stays Stable until a member joins, leaves, or sends no heartbeat within its session timeout. A
deleted group is Dead.

![State diagram of a group](assets/group-states.svg)
"""

RESPONSES = """\
## Responses in each state

In states with members, the table applies to requests that have passed the checks of the member and the generation.
These checks are the same in every state, and their order is fixed:

1. If another member uses the instance id, the response is FENCED_INSTANCE_ID.
2. If the member is not in the group, the response is UNKNOWN_MEMBER_ID.
3. If the generation is not the current one, the response is ILLEGAL_GENERATION.

A dash marks a combination that cannot occur. A client that gets COORDINATOR_NOT_AVAILABLE looks up the coordinator
again.

Some rows are for extensions that only Holdfast has:

- A [standby](glossary.md#standby) is a member without an assignment. Its rows also apply to a
  [registered member](glossary.md#registration) that waits for the others.
- A member that is asked to rejoin gets another assignment within the generation
  ([targeted rejoin](glossary.md#targeted-rejoin)). Until it has sent JoinGroup, its heartbeats get
  REBALANCE_IN_PROGRESS. The heartbeats of a standby with an old generation get the same response.
"""


def render() -> str:
    lines = [INTRODUCTION, RESPONSES, f"| Request | {' | '.join(GroupState)} |", "|---|" + "---|" * len(GroupState)]
    for request, outcomes in OUTCOMES.items():
        lines.append(f"| {request} | " + " | ".join(outcomes[state].value for state in GroupState) + " |")
    return "\n".join(lines) + "\n"


# -- the diagram -------------------------------------------------------------------------------------------------------

GRID = {"Empty": (0, 0), "Dead": (0, 1), "PreparingRebalance": (1, 0), "CompletingRebalance": (1, 1), "Stable": (1, 2)}
"""The column and the row of each state."""
BOX_WIDTH, BOX_HEIGHT, GAP, ARC, MARGIN = 196, 46, 64, 70, 24
STYLE = """\
<style>
.background { fill: #ffffff; }
.state { fill: #e8eaf6; stroke: #3f51b5; stroke-width: 1.5; }
.name { font: 600 14px sans-serif; fill: #1a237e; text-anchor: middle; dominant-baseline: central; }
.transition { fill: none; stroke: #455a64; stroke-width: 1.5; marker-end: url(#head); }
.note { font: 13px sans-serif; fill: #455a64; }
.head { fill: #455a64; }
@media (prefers-color-scheme: dark) {
.background { fill: #24262e; }
.state { fill: #303a6b; stroke: #9fa8da; }
.name { fill: #e8eaf6; }
.transition { stroke: #b0bec5; }
.note, .head { fill: #b0bec5; }
}
</style>
<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">
<path class="head" d="M0 0 8 4 0 8z"/>
</marker>"""

Point = tuple[float, float]


def transitions() -> Iterator[tuple[GroupState, GroupState]]:
    for after, predecessors in PREDECESSORS.items():
        if after is not GroupState.DEAD:
            yield from ((before, after) for before in GroupState if before in predecessors)
    yield GroupState.EMPTY, GroupState.DEAD  # other groups cannot be deleted


def diagram() -> str:
    """Neighbours are joined by lines, and other states of a column by arcs on its right."""
    columns, rows = (1 + max(cell[axis] for cell in GRID.values()) for axis in (0, 1))
    width = 2 * MARGIN + columns * (BOX_WIDTH + GAP) - GAP + ARC
    height = 2 * MARGIN + (rows + 1) * (BOX_HEIGHT + GAP) - GAP - BOX_HEIGHT
    centres = {state: _centre(*cell) for state, cell in GRID.items()}
    x, y = centres["Empty"]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
        "<title>The states of a group and the transitions between them</title>",
        STYLE,
        f'<rect class="background" width="{width}" height="{height}" rx="8"/>',
        f'<circle class="head" cx="{x:g}" cy="{MARGIN + 8}" r="6"/>',
        _transition(f"M{x:g} {MARGIN + 14} V{y - BOX_HEIGHT / 2:g}"),
        f'<text class="note" x="{x + 18:g}" y="{y + (BOX_HEIGHT + GAP) / 2 + 4:g}">deleted</text>',
    ]
    lines += [_transition(_path(centres[before], centres[after])) for before, after in transitions()]
    for state, (x, y) in centres.items():
        corner = f'x="{x - BOX_WIDTH / 2:g}" y="{y - BOX_HEIGHT / 2:g}"'
        lines.append(f'<rect class="state" {corner} width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="8"/>')
        lines.append(f'<text class="name" x="{x:g}" y="{y:g}">{state}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _centre(column: int, row: int) -> Point:
    return (
        MARGIN + BOX_WIDTH / 2 + column * (BOX_WIDTH + GAP),
        MARGIN + GAP + BOX_HEIGHT / 2 + row * (BOX_HEIGHT + GAP),
    )


def _transition(path: str) -> str:
    return f'<path class="transition" d="{path}"/>'


def _path(before: Point, after: Point) -> str:
    (x, y), (to_x, to_y) = before, after
    if y == to_y:
        direction = 1 if to_x > x else -1
        lane = y - 9 * direction
        return f"M{x + direction * BOX_WIDTH / 2:g} {lane:g} H{to_x - direction * BOX_WIDTH / 2:g}"
    direction = 1 if to_y > y else -1
    if abs(to_y - y) > BOX_HEIGHT + GAP:
        edge = x + BOX_WIDTH / 2
        return f"M{edge:g} {y:g} C{edge + ARC:g} {y:g} {edge + ARC:g} {to_y:g} {edge:g} {to_y:g}"
    lane = x + 9 * direction
    return f"M{lane:g} {y + direction * BOX_HEIGHT / 2:g} V{to_y - direction * BOX_HEIGHT / 2:g}"


if __name__ == "__main__":
    PAGE.write_text(render())
    DIAGRAM.write_text(diagram())
    sys.stdout.write(f"wrote {PAGE.name} and {DIAGRAM.name}\n")
