"""No API is without a guard unless somebody said why."""

import holdfast.broker.handlers  # noqa: F401  # registers every handler
from holdfast.broker.dispatch import HANDLERS
from holdfast.broker.guards import GUARDS, UNGUARDED, guarded_handlers


def test_every_api_has_a_guard_or_a_reason_to_have_none() -> None:
    assert set(HANDLERS) == set(GUARDS) | set(UNGUARDED)
    assert not set(GUARDS) & set(UNGUARDED)
    assert set(guarded_handlers()) == set(HANDLERS)
