"""A class with wire fields is the dataclass that it looks like, and is cheaper to declare."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast.wire.apis  # noqa: F401  # declares every API
from holdfast.wire.fields import array, int32, string
from holdfast.wire.message import APIS
from holdfast.wire.struct_class import struct_class


@struct_class
class Ours:
    number: int = int32()
    name: str | None = string(nullable=0, default=None)
    items: list[int] = array(int32())


@dataclass(slots=True)
class Theirs:
    number: int = int32()
    name: str | None = string(nullable=0, default=None)
    items: list[int] = array(int32())  # noqa: RUF009  # it is a `dataclasses.field`


VALUES = (st.integers() | st.floats(), st.none() | st.text(), st.lists(st.integers()))
ARGUMENTS = st.integers(0, 3).flatmap(lambda given: st.tuples(*VALUES[:given]))
NAMED = st.fixed_dictionaries({}, optional=dict(zip(("number", "name", "items"), VALUES, strict=True)))


def made(cls: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """The object, or the error without the name of the class."""
    try:
        return cls(*arguments, **named)
    except TypeError as error:
        return str(error).replace(cls.__name__, "")


def shown(value: Any) -> str:
    return repr(value).replace(type(value).__name__, "")


@given(arguments=ARGUMENTS, named=NAMED)
def test_it_is_made_and_shown_as_a_dataclass(arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    ours, theirs = made(Ours, arguments, named), made(Theirs, arguments, named)

    assert shown(ours) == shown(theirs)


@given(first=ARGUMENTS, second=ARGUMENTS)
def test_it_is_equal_when_a_dataclass_is(first: tuple[Any, ...], second: tuple[Any, ...]) -> None:
    assert (Ours(*first) == Ours(*second)) == (Theirs(*first) == Theirs(*second))
    assert Ours(*first) == Ours(*first)


def test_it_is_not_equal_to_an_object_of_another_class() -> None:
    others: tuple[object, ...] = (Theirs(), 0)

    assert Ours() not in others
    assert Ours() in (Ours(), *others)


def test_it_is_a_dataclass_with_slots_and_without_a_hash() -> None:
    assert is_dataclass(Ours)
    assert [field.name for field in fields(Ours)] == ["number", "name", "items"]
    assert Ours.__match_args__ == Theirs.__match_args__  # type: ignore[attr-defined]
    assert not hasattr(Ours(), "__dict__")
    with pytest.raises(TypeError, match="unhashable"):
        hash(Ours())


def test_it_can_be_replaced_copied_and_pickled() -> None:
    value = Ours(1, "a", [2])

    assert replace(value, number=3) == Ours(3, "a", [2])
    assert copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == value


def test_each_object_has_a_list_of_its_own() -> None:
    first, second = Ours(), Ours()

    first.items.append(1)

    assert second.items == []


def test_no_method_is_compiled_before_it_is_called() -> None:
    @struct_class
    class Declared:
        number: int = int32()

    declared = Declared.__init__

    Declared(number=1)

    assert Declared.__init__ is not declared
    assert Declared.__init__.__code__.co_varnames == ("self", "number")
    for api in APIS.values():
        assert api.request.__eq__ is api.response.__eq__ is Declared.__eq__


def test_a_wrong_argument_is_an_error_that_names_the_class() -> None:
    for _ in range(2):  # the first call and the next one
        with pytest.raises(TypeError, match=r"Ours\.__init__\(\) got an unexpected keyword argument 'names'"):
            Ours(names="a")  # type: ignore[call-arg]
