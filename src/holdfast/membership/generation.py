"""The generation that a member is in, as Java's `AbstractCoordinator.Generation`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

UNKNOWN_GENERATION_ID: Final = -1
NO_MEMBER_ID: Final = ""


@dataclass(frozen=True, slots=True)
class Generation:
    generation_id: int = UNKNOWN_GENERATION_ID
    member_id: str = NO_MEMBER_ID
    protocol: str | None = None

    @property
    def is_valid(self) -> bool:
        return self.generation_id != UNKNOWN_GENERATION_ID

    def member_id_only(self) -> Generation:
        """After ILLEGAL_GENERATION: the member id is still valid, the generation is not."""
        return replace(self, generation_id=UNKNOWN_GENERATION_ID, protocol=None)


NO_GENERATION: Final = Generation()
