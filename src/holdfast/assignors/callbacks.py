"""Passes the assignment of a member to its assignor."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Final

from holdfast.assignors.interface import Assignor, MemberAssignment

_POSITIONAL: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def notify_assignment(assignor: Assignor, assignment: MemberAssignment, generation: int) -> None:
    """KIP-341: `on_assignment`, if defined, takes the assignment, or the assignment and the generation."""
    listener: Callable[..., object] | None = getattr(assignor, "on_assignment", None)
    if listener is None:
        return
    if takes_generation(listener):
        listener(assignment, generation)
    else:
        listener(assignment)


def takes_generation(listener: Callable[..., object]) -> bool:
    parameters = signature(listener).parameters.values()
    places = sum(parameter.kind in _POSITIONAL for parameter in parameters)
    return places >= 2 or any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in parameters)
