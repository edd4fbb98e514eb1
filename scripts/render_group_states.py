"""Writes docs/group-states.md from the coordinator's table: `python scripts/render_group_states.py`."""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.coordinator.states import ANSWERS, PREDECESSORS, GroupState

PAGE = Path(__file__).resolve().parents[1] / "docs" / "group-states.md"

INTRODUCTION = """\
# The states of a group

This page is made from the table in `src/holdfast/coordinator/states.py` by `scripts/render_group_states.py`.

A group is born Empty. Whoever joins starts a rebalance: in PreparingRebalance the coordinator collects JoinGroup
requests until every member has sent one or the time is up. Then there is a new generation, and in
CompletingRebalance everybody waits for the leader's assignment. With it the group is Stable, until somebody joins,
leaves, or is silent for longer than its session. A group that is deleted is Dead.
"""

BEFORE = """\
## What a request gets

Once its sender is known and its generation is the group's. Before that, in every state alike: an instance id that
somebody else holds gets FENCED_INSTANCE_ID, a member that is not in the group UNKNOWN_MEMBER_ID, another generation
ILLEGAL_GENERATION, in this order.

A member that waits has a seat and no share: it was announced with others that are still expected, or it is a standby.
A member that was called gets another share within the generation; until it has joined, its heartbeats are answered
REBALANCE_IN_PROGRESS, as are those of a member that waits in an old generation. Both are Holdfast's own
([what it has beyond Kafka](operations.md#scale-up-without-rebalancing-twice)).
"""


def render() -> str:
    lines = [INTRODUCTION, "```mermaid", "stateDiagram-v2", "    [*] --> Empty"]
    for state, predecessors in PREDECESSORS.items():
        if state is GroupState.DEAD:
            continue
        lines += [f"    {before} --> {state}" for before in GroupState if before in predecessors]
    lines += [f"    {GroupState.EMPTY} --> {GroupState.DEAD}: deleted", "```", "", BEFORE]
    states = [state for state in GroupState if state is not GroupState.DEAD]
    lines.append("| request | " + " | ".join(states) + " |")
    lines.append("|---|" + "---|" * len(states))
    for request, answers in ANSWERS.items():
        lines.append(f"| {request} | " + " | ".join(answers[state].value for state in states) + " |")
    dead = "A Dead group answers COORDINATOR_NOT_AVAILABLE to everything; its clients look for the coordinator anew."
    lines += ["", dead]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render())
    sys.stdout.write(f"wrote {PAGE.name}\n")
