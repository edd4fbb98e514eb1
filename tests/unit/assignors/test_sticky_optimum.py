"""No assignment is more even, and none as even moves less: checked against all possible assignments."""

from hypothesis import HealthCheck, given, settings

from holdfast.assignors.sticky import StickyAssignor
from tests.support.assignments import check_owners, check_well_formed
from tests.support.sticky_groups import Claims, Group, badness, least_badness, owners, small_groups, true_owners


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(small_groups(StickyAssignor))
def test_the_best_of_all_assignments(case: tuple[Group, Claims]) -> None:
    group, claims = case
    assignments = StickyAssignor().assign(*group)

    check_well_formed(group, assignments)
    check_owners(group, assignments)
    before = true_owners(group, claims)
    found = owners({member: assignment.partitions for member, assignment in assignments.items()})
    assert badness(group, found, before) == least_badness(group, before)
