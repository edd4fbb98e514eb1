"""Kafka's rules of who may do what, one by one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.broker.authorization.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    Acl,
    AclTable,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    normalize_host,
)

ALICE, HOST = "User:alice", "192.0.2.7"
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
PREFIXED, DENY = PatternType.PREFIXED, Permission.DENY


def may(table: AclTable, operation: Operation, name: str = "orders", kind: ResourceType = TOPIC) -> bool:
    return table.allows(ALICE, HOST, operation, kind, name)


def test_without_acls_nothing_is_allowed_unless_configured_for_all() -> None:
    assert not may(AclTable([]), READ)
    assert may(AclTable([], allow_everyone_if_no_acl_found=True), READ)


def test_an_acl_of_another_user_closes_the_resource_even_if_all_are_allowed() -> None:
    table = AclTable([Acl("User:bob", TOPIC, "orders", READ)], allow_everyone_if_no_acl_found=True)
    assert not may(table, READ)
    assert may(table, READ, "another")


def test_a_permission_is_for_its_principal_operation_kind_name_and_host() -> None:
    granted = AclTable([Acl(ALICE, TOPIC, "orders", READ, host=HOST)])
    assert may(granted, READ)
    assert not granted.allows("User:bob", HOST, READ, TOPIC, "orders")
    assert not may(granted, WRITE)
    assert not may(granted, READ, kind=GROUP)
    assert not may(granted, READ, "orders2")
    assert not granted.allows(ALICE, "192.0.2.8", READ, TOPIC, "orders")


@pytest.mark.parametrize("principal", [ALICE, "User:*"])
@pytest.mark.parametrize(
    ("name", "pattern", "covers", "does_not"),
    [
        ("orders", PatternType.LITERAL, "orders", "orders.eu"),
        ("orders", PREFIXED, "orders.eu", "order"),
        ("*", PatternType.LITERAL, "anything", None),
        ("*", PREFIXED, "*x", "anything"),
    ],
)
def test_names_are_literal_prefixed_or_all(
    principal: str, name: str, pattern: PatternType, covers: str, does_not: str | None
) -> None:
    table = AclTable([Acl(principal, TOPIC, name, READ, pattern)])
    assert may(table, READ, covers)
    assert does_not is None or not may(table, READ, does_not)


@pytest.mark.parametrize("operation", OPERATIONS[TOPIC])
def test_what_implies_that_one_may_describe(operation: Operation) -> None:
    table = AclTable([Acl(ALICE, TOPIC, "orders", operation)])
    assert may(table, DESCRIBE) is (operation in (READ, WRITE, Operation.DELETE, Operation.ALTER, DESCRIBE))
    configs = operation in (Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS)
    assert may(table, Operation.DESCRIBE_CONFIGS) is configs


def test_all_is_every_operation() -> None:
    table = AclTable([Acl(ALICE, TOPIC, "orders", ALL)])
    assert all(may(table, operation) for operation in OPERATIONS[TOPIC])


def test_a_denial_wins_over_every_permission_but_only_of_its_own_operation() -> None:
    table = AclTable([Acl(ALICE, TOPIC, "*", ALL), Acl("User:*", TOPIC, "ord", WRITE, PREFIXED, DENY)])
    assert not may(table, WRITE)
    assert may(table, READ)
    assert may(table, DESCRIBE), "implied by reading, which is not denied"
    assert may(table, WRITE, "invoices")


def test_a_denial_of_describing_does_not_forbid_to_read() -> None:
    table = AclTable([Acl(ALICE, TOPIC, "orders", READ), Acl(ALICE, TOPIC, "orders", DESCRIBE, permission=DENY)])
    assert may(table, READ)
    assert not may(table, DESCRIBE)


def test_a_super_user_may_do_everything_whatever_is_denied() -> None:
    table = AclTable([Acl(ALICE, TOPIC, "orders", ALL, permission=DENY)], [ALICE])
    assert may(table, READ)
    assert may(table, Operation.ALTER, CLUSTER_NAME, CLUSTER)
    assert table.allows_any(ALICE, HOST, WRITE, TOPIC)


# -- some topic or other -----------------------------------------------------------------------------------------------

NAMES = ["a", "ab", "abc", "b", "*"]
RULES = st.lists(
    st.builds(
        Acl,
        st.sampled_from([ALICE, "User:*", "User:bob"]),
        st.just(TOPIC),
        st.sampled_from(NAMES),
        st.sampled_from([READ, WRITE, ALL]),
        st.sampled_from(PatternType),
        st.sampled_from(Permission),
    ),
    max_size=5,
)


@settings(max_examples=300)
@given(RULES)
def test_a_permission_to_write_to_any_topic_is_found(rules: list[Acl]) -> None:
    table = AclTable(rules)
    # Longer and other names than the rules have, so that a prefix or `*` always has one that no literal denial hits.
    names = [*NAMES, *(f"{name}{more}" for name in NAMES for more in ("", "x", "~y")), "zzz"]
    somewhere = any(table.allows(ALICE, HOST, WRITE, TOPIC, name) for name in names)
    assert table.allows_any(ALICE, HOST, WRITE, TOPIC) is somewhere


@pytest.mark.parametrize(
    ("written", "meant"),
    [("::ffff:127.0.0.1", "127.0.0.1"), ("0:0:0:0:0:0:0:1", "::1"), ("fe80::1%eth0", "fe80::1%eth0")],
)
def test_a_host_has_one_spelling(written: str, meant: str) -> None:
    assert normalize_host(written) == meant
