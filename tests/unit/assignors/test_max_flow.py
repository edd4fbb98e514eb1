"""As much as possible gets through, also where the first way taken is the wrong one."""

from holdfast.assignors.max_flow import max_flow


def test_what_was_sent_the_wrong_way_is_taken_back() -> None:
    # Given a short way in the middle that blocks both long ones
    edges = {("s", "a"): 1, ("s", "b"): 1, ("a", "x"): 1, ("a", "y"): 1, ("b", "x"): 1, ("x", "t"): 1, ("y", "t"): 1}

    sent = max_flow(edges, "s", "t")

    assert sent == {
        ("s", "a"): 1,
        ("s", "b"): 1,
        ("a", "x"): 0,
        ("a", "y"): 1,
        ("b", "x"): 1,
        ("x", "t"): 1,
        ("y", "t"): 1,
    }


def test_an_edge_takes_no_more_than_it_can() -> None:
    assert max_flow({("s", "a"): 5, ("a", "t"): 3}, "s", "t") == {("s", "a"): 3, ("a", "t"): 3}


def test_where_there_is_no_way_nothing_is_sent() -> None:
    assert max_flow({("s", "a"): 5, ("b", "t"): 3}, "s", "t") == {("s", "a"): 0, ("b", "t"): 0}
