"""Groups as rows of a table."""

from holdfast.cli.groups.views import MEMBER_COLUMNS, member_rows
from holdfast.client.descriptions import GroupDescription, MemberDescription


def partitions_shown(protocol_type: str, partitions: dict[str, list[int]]) -> object:
    member = MemberDescription("m-1", None, "client", "/127.0.0.1", [], partitions, b"", b"not a consumer's")
    group = GroupDescription("g", "Stable", protocol_type, "some", None, [member])
    (row,) = member_rows(group)
    return dict(zip(MEMBER_COLUMNS, row, strict=True))["#PARTITIONS"]


def test_a_consumer_has_partitions_or_none() -> None:
    assert partitions_shown("consumer", {"orders": [0, 2], "bills": [1]}) == 3
    assert partitions_shown("consumer", {}) == 0


def test_of_a_member_of_another_protocol_type_no_count_is_claimed() -> None:
    assert partitions_shown("connect", {}) is None
