"""Plots of cost by size as SVG. The same rounds give the same bytes."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from benchmarks.by_size import SERVERS, Cost, points
from benchmarks.measure import HOLDFAST, KAFKA, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The colours of the site's theme, readable on white and on black.
_COLOURS: Final = {HOLDFAST: "#3f6fd8", KAFKA: "#d9822b"}
_MARKERS: Final = {HOLDFAST: "o", KAFKA: "s"}
_INK: Final = "#7b8088"
"""Grey, because a picture does not know the colour of the page."""
_WIDTH_IN, _HEIGHT_IN = 4.2, 3.0


def image(result: Result, costs: Sequence[Cost]) -> list[str]:
    """The line of the page that shows the plot."""
    what = "; ".join(cost.what for cost in costs)
    return [f"![Total cost by number of {result.settings['unit']}: {what}](images/{_file(result)})", ""]


def pictures(result: Result, costs: Sequence[Cost]) -> dict[str, str]:
    return {_file(result): plot(result, costs)}


def _file(result: Result) -> str:
    return f"{result.case}.svg"


def plot(result: Result, costs: Sequence[Cost]) -> str:
    """One diagram for each cost, with a line for each server and a dotted one for a linear cost."""
    # Imported here, because only the page needs it and it takes a second.
    import matplotlib as mpl
    from matplotlib.figure import Figure

    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": result.case,
        "font.family": "sans-serif",
        "font.size": 9,
        "text.color": _INK,
        "axes.labelcolor": _INK,
        "axes.edgecolor": _INK,
        "xtick.color": _INK,
        "ytick.color": _INK,
    }
    with mpl.rc_context(settings):
        figure = Figure(figsize=(_WIDTH_IN * len(costs), _HEIGHT_IN), layout="constrained")
        for axes, cost in zip(figure.subplots(1, len(costs), squeeze=False)[0], costs, strict=True):
            _draw(axes, result, cost)
        written = io.StringIO()
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _tidy(written.getvalue())


def _draw(axes: Axes, result: Result, cost: Cost) -> None:
    for server, name in SERVERS.items():
        found = points(result, server, cost.name)
        if not found:
            continue
        sizes, medians = [size for size, _ in found], [one.median for _, one in found]
        below = [one.median - one.low for _, one in found]
        above = [one.high - one.median for _, one in found]
        axes.errorbar(
            sizes,
            medians,
            yerr=[below, above],
            label=name,
            color=_COLOURS[server],
            marker=_MARKERS[server],
            markersize=4,
            linewidth=1.4,
            capsize=2,
        )
        if server == HOLDFAST:
            linear = [medians[0] * size / sizes[0] for size in sizes]
            axes.plot(sizes, linear, linestyle=":", linewidth=1, color=_INK, label="linear")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(result.settings["sizes"], labels=[f"{size:,}" for size in result.settings["sizes"]])
    axes.minorticks_off()
    axes.set_title(cost.what, fontsize=9)
    axes.set_xlabel(result.settings["unit"])
    axes.set_ylabel(cost.unit)
    axes.grid(visible=True, linewidth=0.4, alpha=0.4, color=_INK)
    axes.legend(frameon=False)


def _tidy(svg: str) -> str:
    """Without metadata for editors and without trailing spaces."""
    svg = re.sub(r"<\?xml.*?\?>\s*|<!DOCTYPE.*?>\s*|<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"
