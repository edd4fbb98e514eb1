"""The structure of the source as figures and as a picture: `docs/architecture.md` and its test use both.

python -m tests.support.architecture           # the figures
python -m tests.support.architecture --write   # and the generated parts of docs/architecture.md again
"""

from __future__ import annotations

import argparse
import ast
import io
import statistics
import tempfile
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import grimp
from radon.metrics import mi_visit

from tests.support import hops, limits
from tests.support.package_picture import Picture

REPOSITORY: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = REPOSITORY / "src" / "holdfast"
DOCS: Final = REPOSITORY / "docs"
PAGE: Final = DOCS / "architecture.md"

_NOT_CODE: Final = frozenset(
    (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
)

Graph = Mapping[str, frozenset[str]]
"""The modules that each module imports."""


# -- imports -----------------------------------------------------------------------------------------------------------


@cache
def imports() -> Graph:
    """All of them: within functions, and under TYPE_CHECKING, too."""
    graph = grimp.build_graph("holdfast", exclude_type_checking_imports=False, cache_dir=None)
    return {module: frozenset(graph.find_modules_directly_imported_by(module)) for module in sorted(graph.modules)}


def components(graph: Graph) -> list[frozenset[str]]:
    """The strongly connected components with more than one module: modules that import each other, however far round.

    Tarjan's algorithm.
    """
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    found: list[frozenset[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        path.append(module)
        for imported in sorted(graph.get(module, ())):
            if imported not in index:
                visit(imported)
                low[module] = min(low[module], low[imported])
            elif imported in path:
                low[module] = min(low[module], index[imported])
        if low[module] == index[module]:
            start = path.index(module)
            component = frozenset(path[start:])
            del path[start:]
            if len(component) > 1:
                found.append(component)

    for module in graph:
        if module not in index:
            visit(module)
    return found


def between_parts(graph: Graph, package: str = "holdfast") -> dict[str, frozenset[str]]:
    """The parts of a package, folders and modules, and which of the others each imports.

    Parts that import each other are one part here, whose name has all of theirs.
    """
    parts = {
        module: module.removeprefix(f"{package}.").split(".")[0] for module in graph if module.startswith(f"{package}.")
    }
    direct: dict[str, set[str]] = {part: set() for part in sorted(set(parts.values()))}
    for module, part in parts.items():
        direct[part] |= {parts[one] for one in graph[module] if one in parts} - {part}
    names = {part: part for part in direct}
    for component in components({part: frozenset(others) for part, others in direct.items()}):
        names |= dict.fromkeys(component, ", ".join(sorted(component)))
    found: dict[str, set[str]] = {name: set() for name in sorted(set(names.values()))}
    for part, others in direct.items():
        found[names[part]] |= {names[one] for one in others} - {names[part]}
    return {name: frozenset(others) for name, others in found.items()}


# -- functions and files -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class Function:
    lines: int
    """Of code: without docstring, comments and blank lines."""
    name: str


@dataclass(frozen=True, slots=True, order=True)
class File:
    lines: int
    path: str
    maintainability: float
    """Radon's index, from 0 to 100: less is harder to maintain."""


def _sources() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), path.read_text()


@cache
def files() -> tuple[File, ...]:
    return tuple(File(text.count("\n"), path, mi_visit(text, multi=True)) for path, text in _sources())


@cache
def functions() -> tuple[Function, ...]:
    return tuple(one for path, text in _sources() for one in _functions_of(path, text))


def _functions_of(path: str, text: str) -> Iterator[Function]:
    code = _lines_of_code(text)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = code & {*range(node.lineno, (node.end_lineno or 0) + 1)} - _docstring(node)
            yield Function(len(lines), f"{path} {node.name}")


def _lines_of_code(text: str) -> set[int]:
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NOT_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    return found


def _docstring(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[int]:
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return {*range(first.lineno, (first.end_lineno or 0) + 1)}
    return set()


def percentile(values: Iterable[int], share: float) -> int:
    ordered = sorted(values)
    return ordered[int(len(ordered) * share)]


# -- the figures -------------------------------------------------------------------------------------------------------


def figures() -> list[tuple[str, str]]:
    lengths = [one.lines for one in functions()]
    cycles = components(imports())
    lowest = min(files(), key=lambda one: one.maintainability)
    with tempfile.TemporaryDirectory() as directory:
        ways = {name: tracer.way for name, tracer in hops.measure(Path(directory)).items()}
    return [
        *((f"{name}: modules / hops", f"{way.modules} / {way.hops}") for name, way in ways.items()),
        ("import cycles", str(len(cycles))),
        ("modules in import cycles", str(sum(map(len, cycles)))),
        ("modules", str(len(imports()))),
        ("function length, median / 95th percentile / longest", _lengths(lengths)),
        ("longest file", "{0.lines} ({0.path})".format(max(files()))),
        ("lowest maintainability index", f"{lowest.maintainability:.1f} ({lowest.path})"),
    ]


def _lengths(lengths: list[int]) -> str:
    return f"{statistics.median(lengths):.0f} / {percentile(lengths, 0.95)} / {max(lengths)}"


# -- the page ----------------------------------------------------------------------------------------------------------


_START: Final = "<!-- generated -->"
_END: Final = "<!-- end of generated -->"


GENERATED: Final = ("architecture.md", "architecture.svg", "architecture-broker.svg", "architecture-coordinator.svg")


@cache
def generated() -> dict[str, str]:
    """The files in `docs` that are made from the source, with what has to be in them."""
    graph = imports()
    packages = Picture("The packages of Holdfast and their imports", _folders(graph, "holdfast"))
    parts = [
        Picture(f"The parts of holdfast.{name} and their imports", between_parts(graph, f"holdfast.{name}"))
        for name in ("broker", "coordinator")
    ]
    made = [_page(PAGE.read_text()), packages.svg(), *(picture.svg() for picture in parts)]
    return dict(zip(GENERATED, made, strict=True))


def _folders(graph: Graph, package: str) -> dict[str, frozenset[str]]:
    """The parts without the modules that stand beside the folders."""
    parts = between_parts(graph, package)
    kept = {part for part in parts if any(module.startswith(f"{package}.{part}.") for module in graph)}
    return {part: others & kept for part, others in parts.items() if part in kept}


def _page(page: str) -> str:
    """The page with its generated part made again."""
    before, _, rest = page.partition(_START)
    _, _, after = rest.partition(_END)
    return f"{before}{_START}\n{_table()}\n{_END}{after}"


def _table() -> str:
    lines = ["| measure | before | limit | target |", "|---|---:|---:|---:|"]
    for name, limit in limits.WAYS.items():
        before = limits.WAYS_BEFORE[name]
        figures = f"{before.modules} / {before.hops} | {limit.modules} / {limit.hops}"
        lines.append(f"| {name}: modules / hops | {figures} | {limits.WAYS_TARGET.get(name, '')} |")
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in limits.TABLE)])


def main() -> None:
    parser = argparse.ArgumentParser(description="the structure of the source in figures")
    parser.add_argument("--write", action="store_true", help="write the generated parts of docs/architecture.md")
    options = parser.parse_args()
    if options.write:
        for name, text in generated().items():
            (DOCS / name).write_text(text)
    for name, value in figures():
        print(f"{name:52} {value}")
    for component in components(imports()):
        print("cycle:", " ".join(sorted(component)))
    print("functions above the limit:")
    for function in sorted(functions(), reverse=True):
        if function.lines > limits.FUNCTION_LINES:
            print(f"  {function.lines:4} {function.name}")
    print("files below the limit of maintainability:")
    for file in sorted(files(), key=lambda one: one.maintainability):
        if file.maintainability < limits.MAINTAINABILITY:
            print(f"  {file.maintainability:4.1f} {file.path}")


if __name__ == "__main__":
    main()
