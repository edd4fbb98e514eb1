"""The users file: written whole, read with suspicion, and noticed when it changes."""

import json
import logging
import stat
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.broker.authorization.acls import Acl, AclTable, Operation, PatternType, Permission, ResourceType
from holdfast.broker.authorization.authorizer import MAX_CACHED_NAME_LENGTH, MAX_LOGGED_DENIALS_PER_SECOND, Authorizer
from holdfast.broker.authorization.users_file import Users, UsersFileError, edit_users, read_users, write_users
from holdfast.broker.config.security import SecuritySettings

READ_ORDERS = Acl("User:alice", ResourceType.TOPIC, "orders", Operation.READ)
PASSWORD = "correct horse battery"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "users.json"


@pytest.fixture
def users() -> Users:
    made = Users(acls=frozenset({READ_ORDERS}), super_users=frozenset({"User:admin"}))
    return made.with_user("alice", PASSWORD, 4096)


def test_what_is_written_is_read(path: Path, users: Users) -> None:
    denial = Acl("User:*", ResourceType.GROUP, "g", Operation.ALL, PatternType.PREFIXED, Permission.DENY, "192.0.2.7")
    users = Users(users.credentials, users.super_users, users.acls | {denial}, users.decoy_secret)
    write_users(path, users)
    assert read_users(path) == users
    assert read_users(path).credentials["alice"]["SCRAM-SHA-512"].matches(PASSWORD)
    assert not read_users(path).credentials["alice"]["SCRAM-SHA-512"].matches("another")


def test_the_file_is_for_its_owner_and_has_no_password(path: Path, users: Users) -> None:
    write_users(path, users)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert PASSWORD not in path.read_text()
    assert PASSWORD not in repr(users)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name], "no temporary file is left"


def test_two_users_with_one_password_do_not_look_alike(users: Users) -> None:
    users = users.with_user("bob", PASSWORD, 4096)
    alice, bob = users.credentials["alice"]["SCRAM-SHA-256"], users.credentials["bob"]["SCRAM-SHA-256"]
    assert alice.salt != bob.salt and alice.stored_key != bob.stored_key


def test_removing_a_user_removes_its_credentials_and_acls(users: Users) -> None:
    gone = users.without_user("alice")
    assert not gone.credentials and not gone.acls
    assert gone.super_users == {"User:admin"}


def test_a_world_readable_file_is_refused(path: Path, users: Users) -> None:
    write_users(path, users)
    path.chmod(0o644)
    with pytest.raises(UsersFileError, match="chmod 600"):
        read_users(path)
    path.chmod(0o640)  # the group that the broker runs with may read it
    assert read_users(path) == users
    write_users(path, users)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640, "and still may when it was changed"


@pytest.mark.parametrize("mode", [0o660, 0o620])
def test_a_file_that_its_group_can_write_is_refused(path: Path, users: Users, mode: int) -> None:
    write_users(path, users)
    path.chmod(mode)
    with pytest.raises(UsersFileError, match="chmod 640"):
        read_users(path)
    write_users(path, users)
    assert read_users(path) == users, "a command that replaces the file also takes the right away"


def test_a_temporary_file_that_a_kill_left_is_no_obstacle(path: Path, users: Users) -> None:
    path.with_name(f"{path.name}.tmp").write_text("half")
    write_users(path, users)
    assert read_users(path) == users
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_edits_at_the_same_time_do_not_undo_each_other(path: Path, users: Users) -> None:
    write_users(path, users)
    reading, barrier = threading.Event(), threading.Barrier(2)

    def grant(name: str) -> None:
        def change(found: Users) -> Users:
            reading.wait(0.05)  # long enough for the other to read the same file, if it were let in
            return replace(found, acls=found.acls | {replace(READ_ORDERS, name=name)})

        barrier.wait()
        edit_users(path, change)

    threads = [threading.Thread(target=grant, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {acl.name for acl in read_users(path).acls} == {"orders", "a", "b"}


def test_an_edit_that_changes_nothing_writes_nothing(path: Path, users: Users) -> None:
    write_users(path, users)
    before = path.stat().st_ino
    assert edit_users(path, lambda found: replace(found, acls=found.acls | {READ_ORDERS})) == users
    assert path.stat().st_ino == before
    edit_users(path, lambda found: replace(found, acls=frozenset()))
    assert path.stat().st_ino != before


def damaged(tree: dict[str, Any], *path: Any, value: Any) -> str:
    *way, last = path
    place: Any = tree
    for step in way:
        place = place[step]
    place[last] = value
    return json.dumps(tree)


@pytest.mark.parametrize(
    "place",
    [
        (("version",), 2),
        (("users", "alice", "SCRAM-SHA-256", "iterations"), 1),
        (("users", "alice", "SCRAM-SHA-256", "salt"), ""),
        (("users", "alice", "SCRAM-SHA-256", "stored_key"), "*"),
        (("users", "alice", "SCRAM-SHA-1"), {}),
        (("users", "a b"), {}),
        (("users",), 5),
        (("acls", 0, "operation"), "FLY"),
        (("acls", 0, "principal"), "alice"),
        (("acls", 0, "name"), ""),
        (("acls", 0), {"resource_type": "TOPIC"}),
        (("acls", 0, "operation"), "IDEMPOTENT_WRITE"),
        (("decoy_secret",), ""),
    ],
    ids=str,
)
def test_a_damaged_file_is_one_sentence(path: Path, users: Users, place: tuple[tuple[Any, ...], Any]) -> None:
    write_users(path, users)
    path.write_text(damaged(json.loads(path.read_text()), *place[0], value=place[1]))
    with pytest.raises(UsersFileError) as refused:
        read_users(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "\udcff"])
def test_what_is_no_users_file_is_one_sentence(path: Path, content: str) -> None:
    path.write_bytes(content.encode(errors="surrogateescape"))
    path.chmod(0o600)
    with pytest.raises(UsersFileError, match=r"damaged|cannot"):
        read_users(path)


@pytest.mark.parametrize("name", ["", "ANONYMOUS", "a b", "a,b", "a:b", "a;b", "*", "añ", "a\nb", 'a"b'])
def test_a_name_that_clients_would_read_differently_is_refused(name: str) -> None:
    expected = "'ANONYMOUS' is reserved" if name == "ANONYMOUS" else "cannot be a user's name"
    with pytest.raises(UsersFileError, match=expected):
        Users().with_user(name, PASSWORD, 4096)


# -- a running broker's ------------------------------------------------------------------------------------------------


@pytest.fixture
def authorizer(path: Path, users: Users) -> Authorizer:
    write_users(path, users)
    return Authorizer(SecuritySettings(users_file=path, super_users=("User:CN=ops",)))


def test_rights_come_from_the_file_and_super_users_also_from_the_config(authorizer: Authorizer) -> None:
    alice = authorizer.permissions_of("User:alice", "h")
    assert alice.topic(Operation.READ, "orders")
    assert not alice.topic(Operation.WRITE, "orders")
    for principal in ("User:admin", "User:CN=ops"):
        assert authorizer.permissions_of(principal, "h").cluster(Operation.ALTER)
    assert alice.operations(ResourceType.TOPIC, "orders") == 1 << Operation.READ | 1 << Operation.DESCRIBE


def test_a_new_file_takes_effect_and_says_whose_password_it_changed(
    authorizer: Authorizer, path: Path, users: Users
) -> None:
    assert not authorizer.permissions_of("User:alice", "h").topic(Operation.READ, "new")
    assert not authorizer.changed
    grant = Acl("User:alice", ResourceType.TOPIC, "new", Operation.READ)
    changed = Users(users.credentials, users.super_users, frozenset({grant}), users.decoy_secret)

    write_users(path, changed)
    assert authorizer.changed
    read = authorizer.reload()
    assert read is not None and not authorizer.changed

    assert authorizer.replace(read) == frozenset()
    assert authorizer.permissions_of("User:alice", "h").topic(Operation.READ, "new")
    assert not authorizer.permissions_of("User:alice", "h").topic(Operation.READ, "orders")
    assert authorizer.replace(authorizer.snapshot_of(changed.with_user("alice", "another", 4096))) == {"User:alice"}
    assert authorizer.replace(authorizer.snapshot_of(Users())) == {"User:alice"}


def test_a_broken_new_file_changes_nothing_and_is_one_log_line(
    authorizer: Authorizer, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_text("{")
    with caplog.at_level(logging.INFO):
        assert authorizer.changed
        assert authorizer.reload() is None
        assert not authorizer.changed
    assert authorizer.permissions_of("User:alice", "h").topic(Operation.READ, "orders")
    assert len(caplog.records) == 1
    assert "stay in force" in caplog.text


def test_a_refusal_is_logged_once_and_a_list_that_leaves_something_out_is_not(
    authorizer: Authorizer, caplog: pytest.LogCaptureFixture
) -> None:
    alice = authorizer.permissions_of("User:alice", "h")
    with caplog.at_level(logging.INFO):
        assert not alice.can_see(ResourceType.TOPIC, "secret")
        assert not caplog.records
        for _ in range(3):
            assert not alice.topic(Operation.DESCRIBE, "secret")
    assert [record.getMessage() for record in caplog.records] == ["'User:alice' at h may not DESCRIBE TOPIC 'secret'"]


def test_a_file_that_was_made_readable_takes_effect(authorizer: Authorizer, path: Path, users: Users) -> None:
    """`chmod` leaves the time of the content alone."""
    write_users(path, Users(users.credentials, users.super_users, frozenset(), users.decoy_secret))
    path.chmod(0o644)
    assert authorizer.changed and authorizer.reload() is None
    assert not authorizer.changed

    path.chmod(0o600)

    assert authorizer.changed
    read = authorizer.reload()
    assert read is not None and read.acls == ()


def test_names_that_no_resource_has_are_answered_and_not_remembered(authorizer: Authorizer) -> None:
    alice = authorizer.permissions_of("User:alice", "h")
    for number in range(50):
        assert not alice.group(Operation.READ, f"{number}" + "x" * MAX_CACHED_NAME_LENGTH)
    assert not authorizer._current.decisions and not authorizer._logged_denials

    assert not alice.group(Operation.READ, "x" * MAX_CACHED_NAME_LENGTH)
    assert len(authorizer._current.decisions) == len(authorizer._logged_denials) == 1


def test_an_answer_that_is_found_while_the_file_is_replaced_is_not_remembered(
    authorizer: Authorizer, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metadata asks in a worker thread."""
    without = authorizer.snapshot_of(Users(users.credentials, users.super_users, frozenset(), users.decoy_secret))
    original = AclTable.allows

    def replaced_meanwhile(table: AclTable, *question: Any) -> bool:
        answer = original(table, *question)
        authorizer.replace(without)
        return answer

    alice = authorizer.permissions_of("User:alice", "h")
    monkeypatch.setattr(AclTable, "allows", replaced_meanwhile)
    assert alice.topic(Operation.READ, "orders"), "it was allowed when it was asked"
    monkeypatch.undo()

    assert not alice.topic(Operation.READ, "orders")


def test_of_thousands_of_refusals_a_hundred_are_logged_and_the_others_counted(
    path: Path, users: Users, caplog: pytest.LogCaptureFixture
) -> None:
    write_users(path, users)
    now_s = [10.0]
    authorizer = Authorizer(SecuritySettings(users_file=path), lambda: now_s[0])
    alice = authorizer.permissions_of("User:alice", "h")
    with caplog.at_level(logging.INFO):
        for number in range(5000):
            assert not alice.topic(Operation.READ, f"t{number}")
        assert len(caplog.records) == MAX_LOGGED_DENIALS_PER_SECOND
        caplog.clear()
        now_s[0] = 11.0
        assert not alice.topic(Operation.READ, "later")
    assert [record.getMessage() for record in caplog.records] == [
        "4900 more denials in one second are not logged one by one",
        "'User:alice' at h may not READ TOPIC 'later'",
    ]


@pytest.mark.parametrize(
    ("written", "meant"),
    [("0:0:0:0:0:0:0:1", "::1"), ("::ffff:10.1.2.3", "10.1.2.3"), ("10.1.2.3", "10.1.2.3"), ("*", "*")],
)
def test_a_host_is_the_same_however_it_is_written(path: Path, users: Users, written: str, meant: str) -> None:
    write_users(path, users)
    tree = json.loads(path.read_text())
    tree["acls"][0]["host"] = written
    path.write_text(json.dumps(tree))

    assert {acl.host for acl in read_users(path).acls} == {meant, *(one["host"] for one in tree["acls"][1:])}


@pytest.mark.parametrize("host", ["10.0.0.0/8", "broker.example", "10.0.0", ""])
def test_a_host_that_no_peer_can_have_is_refused(path: Path, users: Users, host: str) -> None:
    write_users(path, users)
    tree = json.loads(path.read_text())
    tree["acls"][0]["host"] = host
    path.write_text(json.dumps(tree))
    with pytest.raises(UsersFileError, match="is no address of one host"):
        read_users(path)
