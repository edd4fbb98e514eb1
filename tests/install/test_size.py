"""`pip install holdfast` stays light: the number and the size of the packages that a broker needs."""

from __future__ import annotations

import struct
from importlib.metadata import PackagePath, distribution
from pathlib import Path

import pytest

from tests.install.environments import extras
from tests.support.installed_packages import CORE, packages_of, size_bytes

MOST_PACKAGES = 5
LIMIT_BYTES = 15_000_000
"""The limit for the base installation. It is kept without the debug information in uvloop's wheel, and exceeded with
it (docs/decisions/0033-dependencies.md)."""
INSTALLED_BYTES = 19_240_000
WITHOUT_DEBUG_BYTES = 7_250_000
"""Today's sizes, as pip unpacks the packages, and as `strip` leaves them."""
GROWTH_BYTES = 500_000
"""A larger growth is a decision."""

_ELF_64_LITTLE_ENDIAN = b"\x7fELF\x02\x01"
_SECTION = struct.Struct("<IIQQQQIIQQ")


def test_a_broker_needs_few_and_small_packages() -> None:
    packages = packages_of(CORE)
    installed = size_bytes(packages)
    without_debug = installed - sum(debug_bytes(path) for one in packages for path in libraries(one.name))

    assert [one.name for one in packages if one.is_direct] == ["cramjam", "google-crc32c", "scramp", "uvloop"]
    assert len(packages) <= MOST_PACKAGES, packages
    assert without_debug <= LIMIT_BYTES
    assert without_debug <= WITHOUT_DEBUG_BYTES + GROWTH_BYTES, (without_debug, packages)
    assert installed <= INSTALLED_BYTES + GROWTH_BYTES, (installed, packages)


def libraries(package: str) -> list[Path]:
    return [path for path in map(_located, distribution(package).files or []) if path.suffix == ".so"]


def debug_bytes(library: Path) -> int:
    """The sections that `strip` removes."""
    content = library.read_bytes()
    assert content.startswith(_ELF_64_LITTLE_ENDIAN), library
    (sections_at,) = struct.unpack_from("<Q", content, 0x28)
    size, count, names_index = struct.unpack_from("<HHH", content, 0x3A)
    sections = [_SECTION.unpack_from(content, sections_at + number * size) for number in range(count)]
    names_at = sections[names_index][4]

    def name_of(section: tuple[int, ...]) -> bytes:
        begin = names_at + section[0]
        return content[begin : content.index(b"\0", begin)]

    return sum(one[5] for one in sections if name_of(one).startswith((b".debug_", b".symtab", b".strtab")))


def test_the_size_of_a_package_is_that_of_its_files() -> None:
    """The control: what is measured is there, also of packages that others bring."""
    sizes = {one.name: one.size_bytes for one in packages_of(CORE)}

    assert sizes["asn1crypto"] > 100_000, "scramp brings it"
    assert sizes["cramjam"] > max(path.stat().st_size for path in libraries("cramjam"))
    assert sum(map(debug_bytes, libraries("uvloop"))) > 10_000_000, "the debug information that does not count"


@pytest.mark.parametrize("extra", sorted(extras()))
def test_an_extra_brings_its_packages_and_not_those_of_the_core(extra: str) -> None:
    packages = packages_of(extra)

    assert len([one for one in packages if one.is_direct]) == len(extras()[extra])
    assert not {one.name for one in packages if one.is_direct} & {one.name for one in packages_of(CORE)}


def _located(path: PackagePath) -> Path:
    return Path(str(path.locate()))
