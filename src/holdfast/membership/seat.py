"""What a member has of its group: the generation, its id in it, and the protocol that was agreed on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

NO_GENERATION: Final = -1
NO_MEMBER_ID: Final = ""


@dataclass(frozen=True, slots=True)
class Seat:
    generation: int = NO_GENERATION
    member_id: str = NO_MEMBER_ID
    protocol: str | None = None

    @property
    def is_held(self) -> bool:
        return self.generation != NO_GENERATION

    def without_generation(self) -> Seat:
        """ILLEGAL_GENERATION: the id is still good, the generation is not."""
        return replace(self, generation=NO_GENERATION, protocol=None)


NO_SEAT: Final = Seat()
