"""What an installation of Holdfast consists of, from the metadata of the installed packages.

`python -m tests.support.installed_packages` prints the packages of each extra, for docs/decisions/0033-dependencies.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CORE = ""
"""The dependencies without an extra."""


@dataclass(frozen=True, order=True)
class Package:
    name: str
    version: str
    size_bytes: int
    """As unpacked; without bytecode, which Python may write later."""
    licence: str
    is_direct: bool
    """Whether pyproject.toml names it."""


def packages_of(extra: str) -> list[Package]:
    """The packages that Holdfast needs with this extra and not without it, and all that those need themselves."""
    direct = _required(distribution("holdfast"), extra)
    if extra != CORE:
        core = {one.name for one in _required(distribution("holdfast"), CORE)}
        direct = [one for one in direct if one.name not in core]
    named = {canonicalize_name(one.name) for one in direct}
    return sorted(_package(name, found, name in named) for name, found in _closure(direct).items())


def size_bytes(packages: Iterable[Package]) -> int:
    return sum(one.size_bytes for one in packages)


def _required(found: Distribution, *extras: str) -> list[Requirement]:
    requirements = [Requirement(one) for one in found.requires or []]
    environments = [{"extra": extra} for extra in (extras or (CORE,))]
    return [
        one
        for one in requirements
        if not one.marker or any(one.marker.evaluate(environment) for environment in environments)
    ]


def _closure(direct: Iterable[Requirement]) -> dict[str, Distribution]:
    found: dict[str, Distribution] = {}
    visited: set[tuple[str, frozenset[str]]] = set()
    waiting = [*direct]
    while waiting:
        wanted = waiting.pop()
        key = (canonicalize_name(wanted.name), frozenset(wanted.extras))
        if key in visited:
            continue
        visited.add(key)
        found[key[0]] = distribution(wanted.name)
        waiting += _required(found[key[0]], CORE, *wanted.extras)
    return found


def _package(name: str, found: Distribution, is_direct: bool) -> Package:
    files = (Path(str(found.locate_file(one))) for one in found.files or [] if one.suffix != ".pyc")
    size = sum(path.stat().st_size for path in files if path.is_file())
    return Package(name, found.version, size, _licence(found), is_direct)


def _licence(found: Distribution) -> str:
    about = found.metadata.json
    classifiers = [one for one in about.get("classifier", []) if one.startswith("License ::")]
    stated = about.get("license_expression") or (classifiers[0] if classifiers else about.get("license", "not stated"))
    return str(stated).rpartition(":: ")[2].partition("\n")[0]


def main() -> None:
    for extra in (CORE, "client", "plot", "spark", "dev"):
        packages = packages_of(extra)
        print(f"{extra or 'core'}: {len(packages)} packages, {size_bytes(packages) / 1e6:.1f} MB")
        for one in packages:
            mark = "*" if one.is_direct else " "
            print(f"  {mark} {one.name} {one.version}  {one.size_bytes / 1e6:.2f} MB  {one.licence}")


if __name__ == "__main__":
    main()
