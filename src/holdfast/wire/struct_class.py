"""Declares a class with wire fields: a dataclass with slots, whose `__init__` is generated when it is first called.

Every process that imports this package declares some 250 of these classes and uses a few of them. `dataclass` would
compile four methods for each, which took a third of a broker's startup time.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform()
def struct_class(cls: type[T]) -> type[T]:
    """As `dataclass(slots=True)`: the same `__init__`, equality and `repr`, without a hash."""
    if not cls.__doc__:
        cls.__doc__ = f"{cls.__name__}, see its fields."  # otherwise `dataclass` inspects the signature for one
    declared: Any = dataclasses.dataclass(slots=True, init=False, repr=False, eq=False)(cls)
    declared.__init__ = _first_init
    declared.__eq__ = _equals
    declared.__repr__ = _representation
    declared.__hash__ = None
    return declared  # type: ignore[no-any-return]  # the same class, with slots and methods


def _first_init(self: Any, *args: Any, **values: Any) -> None:
    """Replaces itself on the class, and is never called again."""
    cls = type(self)
    cls.__init__ = _make_init(cls)
    cls.__init__(self, *args, **values)


def _make_init(cls: type[Any]) -> Any:
    """Sets every field in one function without a loop, because it is on the path of each reply."""
    names: dict[str, Any] = {"EMPTY": object()}
    parameters, lines = ["self"], ["    pass"]
    for field in dataclasses.fields(cls):
        names[f"default_{field.name}"] = field.default
        if field.default_factory is dataclasses.MISSING:
            parameters.append(f"{field.name}=default_{field.name}")
            lines.append(f"    self.{field.name} = {field.name}")
        else:
            parameters.append(f"{field.name}=EMPTY")
            lines.append(f"    self.{field.name} = [] if {field.name} is EMPTY else {field.name}")
    source = "\n".join([f"def __init__({', '.join(parameters)}):", *lines])
    exec(source, names)  # noqa: S102  # our own text, from our own declarations
    made = names["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"  # errors of a call name the class
    return made


def _values(struct: Any) -> tuple[Any, ...]:
    return tuple([getattr(struct, name) for name in struct.__slots__])


def _equals(self: Any, other: object) -> bool:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _representation(self: Any) -> str:
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
    return f"{type(self).__qualname__}({values})"
