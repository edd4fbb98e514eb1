"""`pip install holdfast` stays light: the number and the size of the packages that a broker needs."""

from __future__ import annotations

from importlib.metadata import PackagePath, distribution
from pathlib import Path

import pytest

from tests.install.environments import extras
from tests.support.installed_packages import CORE, packages_of, size_bytes

MOST_PACKAGES = 5
MOST_BYTES = 6_000_000
"""Without uvloop."""
MOST_UVLOOP_BYTES = 15_000_000
"""Its wheel has 12 MB of debug information (docs/decisions/0033-dependencies.md)."""


def test_a_broker_needs_few_and_small_packages() -> None:
    packages = packages_of(CORE)

    assert [one.name for one in packages if one.is_direct] == ["cramjam", "google-crc32c", "scramp", "uvloop"]
    assert len(packages) <= MOST_PACKAGES, packages
    assert size_bytes(one for one in packages if one.name != "uvloop") <= MOST_BYTES, packages
    assert size_bytes(one for one in packages if one.name == "uvloop") <= MOST_UVLOOP_BYTES, packages


def test_the_size_of_a_package_is_that_of_its_files() -> None:
    """The control: what is measured is there, also of packages that others bring."""
    sizes = {one.name: one.size_bytes for one in packages_of(CORE)}

    assert sizes["asn1crypto"] > 100_000, "scramp brings it"
    assert sizes["cramjam"] > max(
        path.stat().st_size for path in map(_located, distribution("cramjam").files or []) if path.suffix == ".so"
    )


@pytest.mark.parametrize("extra", sorted(extras()))
def test_an_extra_brings_its_packages_and_not_those_of_the_core(extra: str) -> None:
    packages = packages_of(extra)

    assert len([one for one in packages if one.is_direct]) == len(extras()[extra])
    assert not {one.name for one in packages if one.is_direct} & {one.name for one in packages_of(CORE)}


def _located(path: PackagePath) -> Path:
    return Path(str(path.locate()))
