"""Which instance ids `--instance-prefix` means."""

import pytest

from holdfast.cli.groups.remove_members import begins_with


@pytest.mark.parametrize(
    ("instance_id", "prefix", "is_meant"),
    [
        ("app-1", "app-1", True),
        ("app-1-0", "app-1", True),
        ("app-1.0", "app-1", True),
        ("app-1_0", "app-1", True),
        ("app-1/0", "app-1", True),
        ("app-10", "app-1", False),
        ("app-1a", "app-1", False),
        ("app-1", "app-", True),
        ("app-10", "app-", True),
        ("app", "app-", False),
        ("app-1", "app", True),
        ("apple-1", "app", False),
        ("my-app-1", "app-1", False),
        ("größe", "gr", False),
    ],
)
def test_a_prefix_ends_where_a_part_of_the_id_ends(instance_id: str, prefix: str, is_meant: bool) -> None:
    assert begins_with(instance_id, prefix) is is_meant
