"""The parts of a package and their imports as an SVG: one box each, importers above what they import. Deterministic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Final

_LETTER: Final = 8
_MIN_WIDTH: Final = 120
_HEIGHT: Final = 36
_GAP: Final = 36
_ROW: Final = 96
_MARGIN: Final = 20

_STYLE: Final = (
    "text{font:14px system-ui,sans-serif;text-anchor:middle;fill:#1a1a1a}"
    "rect{fill:#eef3fa;stroke:#3b6ea5;stroke-width:1.5}"
    ".back{fill:#fff;stroke:none}"
    "path{fill:none;stroke:#707880;stroke-width:1.2;marker-end:url(#head)}"
    "marker path{fill:#707880;stroke:none}"
)
_ARROWHEAD: Final = (
    '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0L8 4L0 8z"/></marker>'
)


@dataclass(frozen=True)
class Picture:
    title: str
    imports: Mapping[str, frozenset[str]]
    """Of each part, without cycles."""

    @cached_property
    def ranks(self) -> dict[str, int]:
        """The row of each part, 0 at the bottom: one above the highest that it imports."""
        found: dict[str, int] = {}

        def rank(part: str) -> int:
            if part not in found:
                found[part] = 1 + max((rank(one) for one in sorted(self.imports[part])), default=-1)
            return found[part]

        for part in sorted(self.imports):
            rank(part)
        return found

    @cached_property
    def reachable(self) -> dict[str, frozenset[str]]:
        """All that each part imports, by itself or through others."""
        found: dict[str, frozenset[str]] = {}
        for part in sorted(self.imports, key=lambda one: self.ranks[one]):
            direct = self.imports[part]
            found[part] = direct.union(*(found[one] for one in direct))
        return found

    @cached_property
    def arrows(self) -> list[tuple[str, str]]:
        """The imports that do not follow from the others."""
        return [
            (part, one)
            for part in sorted(self.imports)
            for one in sorted(self.imports[part])
            if not any(one in self.reachable[other] for other in self.imports[part] if other != one)
        ]

    @cached_property
    def places(self) -> dict[str, tuple[int, int]]:
        """The middle of each box: as near to above the boxes that it points to as its neighbours allow."""
        rows: dict[int, list[str]] = {}
        for part, rank in sorted(self.ranks.items()):
            rows.setdefault(rank, []).append(part)
        found: dict[str, tuple[int, int]] = {}
        for rank in sorted(rows):
            y = _MARGIN + _HEIGHT // 2 + (max(rows) - rank) * _ROW
            wanted = sorted((self._above_imports(one, found), one) for one in rows[rank])
            found |= {part: (x, y) for part, x in _apart(wanted).items()}
        left = min(x - _width(part) // 2 for part, (x, _) in found.items()) - _MARGIN
        return {part: (x - left, y) for part, (x, y) in found.items()}

    def _above_imports(self, part: str, places: Mapping[str, tuple[int, int]]) -> int:
        below = [places[to][0] for importer, to in self.arrows if importer == part]
        return sum(below) // len(below) if below else 0

    def svg(self) -> str:
        width = max(x + _width(part) // 2 for part, (x, _) in self.places.items()) + _MARGIN
        height = max(y for _, y in self.places.values()) + _HEIGHT // 2 + _MARGIN
        size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
            f"<title>{escape(self.title)}</title>",
            f"<style>{_STYLE}</style><defs>{_ARROWHEAD}</defs>",
            f'<rect class="back" width="{width}" height="{height}"/>',
            *(self._arrow(part, one) for part, one in self.arrows),
            *(self._box(part) for part in sorted(self.imports)),
            "</svg>",
        ]
        return "\n".join(lines) + "\n"

    def _box(self, part: str) -> str:
        (x, y), width = self.places[part], _width(part)
        rect = f'<rect x="{x - width // 2}" y="{y - _HEIGHT // 2}" width="{width}" height="{_HEIGHT}" rx="5"/>'
        return f'{rect}<text x="{x}" y="{y + 5}">{escape(part)}</text>'

    def _arrow(self, part: str, imported: str) -> str:
        (x, y), (to_x, to_y) = self.places[part], self.places[imported]
        top, bottom = y + _HEIGHT // 2, to_y - _HEIGHT // 2
        bend = (bottom - top) // 2
        return f'<path d="M{x} {top}C{x} {top + bend} {to_x} {bottom - bend} {to_x} {bottom}"/>'


def _width(part: str) -> int:
    return max(_MIN_WIDTH, _LETTER * len(part) + 24)


def _apart(wanted: list[tuple[int, str]]) -> dict[str, int]:
    """Places in this order that do not overlap, around the middle of those that are wanted."""
    found: dict[str, int] = {}
    least = None
    for x, part in wanted:
        half = _width(part) // 2
        place = x if least is None else max(x, least + half)
        found[part] = place
        least = place + half + _GAP
    shift = (sum(found.values()) - sum(x for x, _ in wanted)) // len(wanted)
    return {part: x - shift for part, x in found.items()}
