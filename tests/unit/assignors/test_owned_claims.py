"""Who owns what, by what the members say."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.assignors.owned_claims import Claim, resolve
from holdfast.assignors.partition_index import UNASSIGNED


def claim(member: int, generation: int, *numbers: int) -> Claim:
    return Claim(member, np.array(numbers, dtype=np.int32), generation)


def test_what_one_member_claims_is_its_own() -> None:
    ownership = resolve(3, [claim(0, 5, 0), claim(1, 5, 2)])
    assert ownership.owner.tolist() == [0, UNASSIGNED, 1]
    assert not ownership.contested.any()


def test_equal_claims_in_one_generation_both_lose() -> None:
    ownership = resolve(2, [claim(0, 5, 0, 1), claim(1, 5, 0)])
    assert ownership.owner.tolist() == [UNASSIGNED, 0]
    assert ownership.contested.tolist() == [True, False]


def test_an_uncontested_stale_claim_is_kept() -> None:
    assert resolve(2, [claim(0, 5, 0), claim(1, 2, 1)]).owner.tolist() == [0, 1]


def test_a_partition_that_a_member_names_twice_is_its_own_once() -> None:
    ownership = resolve(1, [claim(0, 5, 0, 0)])
    assert ownership.owner.tolist() == [0]
    assert not ownership.contested.any()


@pytest.mark.parametrize("generations", list(permutations((1, 2, 3))))
@pytest.mark.parametrize("order", list(permutations((0, 1, 2))))
def test_the_newest_of_three_generations_wins_in_any_order(
    generations: tuple[int, ...], order: tuple[int, ...]
) -> None:
    claims = [claim(member, generations[member], 0) for member in range(3)]
    assert resolve(1, [claims[place] for place in order]).owner.tolist() == [generations.index(3)]


@pytest.mark.parametrize("order", list(permutations((0, 1, 2))))
def test_a_newer_claim_wins_over_two_equal_older_ones_in_any_order(order: tuple[int, ...]) -> None:
    claims = [claim(0, 5, 0), claim(1, 5, 0), claim(2, 7, 0)]
    ownership = resolve(1, [claims[place] for place in order])
    assert ownership.owner.tolist() == [2]
    assert not ownership.contested.any()


@pytest.mark.parametrize("order", list(permutations((0, 1, 2))))
def test_two_equal_newer_claims_both_lose_and_the_older_one_does_not_win(order: tuple[int, ...]) -> None:
    claims = [claim(0, 7, 0), claim(1, 7, 0), claim(2, 5, 0)]
    ownership = resolve(1, [claims[place] for place in order])
    assert ownership.owner.tolist() == [UNASSIGNED]
    assert ownership.contested.tolist() == [True]


def test_a_partition_may_be_read_at_once_by_its_owner_or_if_it_is_unowned() -> None:
    ownership = resolve(4, [claim(0, 5, 0, 1, 3), claim(1, 5, 3)])
    receivers = np.array([0, 1, 1, 1], dtype=np.int32)
    assert ownership.free_for(receivers).tolist() == [True, False, True, False]


@given(st.data())
def test_the_order_of_the_members_means_nothing(data: st.DataObject) -> None:
    numbers = st.lists(st.integers(0, 4), max_size=4)
    claims = [claim(member, data.draw(st.integers(-1, 2)), *data.draw(numbers)) for member in range(4)]
    ownership, other = resolve(5, claims), resolve(5, data.draw(st.permutations(claims)))
    assert ownership.owner.tolist() == other.owner.tolist()
    assert ownership.contested.tolist() == other.contested.tolist()
