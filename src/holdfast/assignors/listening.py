"""How an assignor hears what its member was given."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Final

from holdfast.assignors.interface import Assignor, MemberAssignment

_TAKES_A_PLACE: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def tell(assignor: Assignor, assignment: MemberAssignment, generation: int) -> None:
    """KIP-341: `on_assignment`, where there is one, takes the assignment, or the assignment and the generation."""
    listener: Callable[..., object] | None = getattr(assignor, "on_assignment", None)
    if listener is None:
        return
    if takes_generation(listener):
        listener(assignment, generation)
    else:
        listener(assignment)


def takes_generation(listener: Callable[..., object]) -> bool:
    parameters = signature(listener).parameters.values()
    places = sum(parameter.kind in _TAKES_A_PLACE for parameter in parameters)
    return places >= 2 or any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in parameters)
