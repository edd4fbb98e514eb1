"""Assignors by name."""

import pytest

from holdfast.assignors import (
    ASSIGNORS,
    CooperativeStickyAssignor,
    CopartitionedAssignor,
    RackAwareAssignor,
    RangeAssignor,
    RedundantAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    UnknownAssignor,
    assignor,
)

JAVAS = {"range", "roundrobin", "sticky", "cooperative-sticky"}


def test_every_short_name_has_its_assignor() -> None:
    assert {name: type(assignor(name)) for name in ASSIGNORS} == {
        "range": RangeAssignor,
        "roundrobin": RoundRobinAssignor,
        "sticky": StickyAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
        "copartitioned": CopartitionedAssignor,
        "redundant": RedundantAssignor,
        "rack-aware": RackAwareAssignor,
    }


@pytest.mark.parametrize("name", ASSIGNORS)
def test_each_lookup_makes_a_new_one(name: str) -> None:
    assert assignor(name) is not assignor(name)


def test_javas_assignors_have_javas_names_on_the_wire_and_ours_have_others() -> None:
    on_the_wire = {short: assignor(short).name for short in ASSIGNORS}

    assert {short: on_the_wire[short] for short in JAVAS} == {name: name for name in JAVAS}
    assert all(name.startswith("holdfast-") for short, name in on_the_wire.items() if short not in JAVAS)
    assert len(set(on_the_wire.values())) == len(ASSIGNORS)


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("stikcy", "sticky"),
        ("round-robin", "roundrobin"),
        ("Range", "range"),
        ("cooperative_sticky", "cooperative-sticky"),
    ],
)
def test_an_unknown_name_is_refused_with_the_one_that_was_meant(asked: str, meant: str) -> None:
    with pytest.raises(UnknownAssignor, match=f"there is no assignor '{asked}': did you mean '{meant}'\\?"):
        assignor(asked)


def test_a_name_like_no_other_is_refused_with_all_that_are_known() -> None:
    with pytest.raises(UnknownAssignor, match="'%%%': known are range, roundrobin, sticky"):
        assignor("%%%")
