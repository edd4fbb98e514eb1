"""The assignor in examples/ does what its page says."""

import runpy
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import given

from holdfast.assignors import Cluster, MemberSubscription
from tests.support.assignments import Group, check_owners, check_well_formed, groups, plain
from tests.support.kafka_distribution import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "lag_weighted.py"
# A module of the examples is on nobody's path.
LagWeightedAssignor: Callable[..., Any] = runpy.run_path(str(EXAMPLE))["LagWeightedAssignor"]

BEHIND = {("t", 0): 900, ("t", 1): 300, ("t", 2): 300, ("t", 3): 300}


def subscribed(lag: Mapping[tuple[str, int], int]) -> MemberSubscription:
    return MemberSubscription(["t"], LagWeightedAssignor(lag=lambda: lag).subscription_user_data(["t"]))


def test_lag_is_even_though_partitions_are_not() -> None:
    group = {"a": subscribed(BEHIND), "b": subscribed({})}

    assert plain(LagWeightedAssignor().assign(Cluster({"t": 4}), group)) == {"a": {"t": [0]}, "b": {"t": [1, 2, 3]}}


def test_without_lag_the_partitions_are_even() -> None:
    group = {"a": subscribed({}), "b": MemberSubscription(["t"])}

    assert plain(LagWeightedAssignor().assign(Cluster({"t": 4}), group)) == {"a": {"t": [0, 2]}, "b": {"t": [1, 3]}}


def test_the_lag_reported_by_every_member_counts() -> None:
    group = {"a": subscribed({("t", 1): 50}), "b": subscribed({("t", 0): 40, ("t", 2): 5, ("t", 1): 7})}

    assert plain(LagWeightedAssignor().assign(Cluster({"t": 3}), group)) == {"a": {"t": [1]}, "b": {"t": [0, 2]}}


def test_topics_that_are_not_subscribed_are_not_reported() -> None:
    assert LagWeightedAssignor(lag=lambda: {("u", 0): 1, ("t", 0): 2}).subscription_user_data({"t"}) == b'[["t", 0, 2]]'


@given(groups())
def test_every_partition_has_one_owner(group: Group) -> None:
    assignments = LagWeightedAssignor().assign(*group)

    check_well_formed(group, assignments)
    check_owners(group, assignments)


def test_it_runs_by_itself() -> None:
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["busy {'orders': [0]} 9000", "calm {'orders': [1, 2, 3]} 300"]
