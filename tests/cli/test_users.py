"""`holdfast users`: the file is made, changed and shown without anybody knowing its format."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.broker.authorization.acls import Operation, PatternType, Permission, ResourceType
from holdfast.broker.authorization.users_file import read_users
from holdfast.cli.main import main
from tests.support.kafka_distribution import REPOSITORY

PASSWORD = "correct horse"


class UsersCli:
    def __init__(self, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.file = file
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def run(self, *words: str, stdin: str = "") -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        code = main(["users", words[0], "--file", str(self.file), *words[1:]])
        said = self._capsys.readouterr()
        assert PASSWORD not in said.out + said.err
        return code, said.out, said.err


@pytest.fixture
def users_cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> UsersCli:
    return UsersCli(tmp_path / "users.json", monkeypatch, capsys)


def test_a_user_is_added_gets_a_new_password_and_is_removed(users_cli: UsersCli) -> None:
    assert users_cli.run("add", "--user", "alice", stdin=f"{PASSWORD}\n") == (0, "alice: added\n", "")
    first = read_users(users_cli.file).credentials["alice"]
    assert all(credential.matches(PASSWORD) for credential in first.values())
    assert users_cli.run("add", "--user", "alice", stdin="another") == (0, "alice: has a new password\n", "")
    assert read_users(users_cli.file).credentials["alice"]["SCRAM-SHA-512"].matches("another")
    assert users_cli.run("remove", "--user", "alice") == (0, "alice: removed\n", "")
    assert not read_users(users_cli.file).credentials
    code, out, errors = users_cli.run("remove", "--user", "alice")
    assert (code, out) == (1, "") and "there is no user 'alice'" in errors


def test_a_password_may_come_from_a_file(users_cli: UsersCli, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{PASSWORD}\r\nwhat follows is not read\n")
    assert users_cli.run("add", "--user", "bob", "--password-file", str(secret), "--iterations", "5000")[0] == 0
    credential = read_users(users_cli.file).credentials["bob"]["SCRAM-SHA-256"]
    assert credential.matches(PASSWORD) and credential.iterations == 5000


def test_rights_are_granted_shown_and_taken_back(users_cli: UsersCli) -> None:
    users_cli.run("add", "--user", "alice", stdin=PASSWORD)
    users_cli.run("add", "--user", "admin", "--super-user", stdin=PASSWORD)
    granted = users_cli.run(
        "grant", "--user", "alice", "--topic", "orders", "--group", "billing", "--operation", "read"
    )
    assert granted == (0, "User:alice may READ TOPIC orders\nUser:alice may READ GROUP billing\n", "")
    words = (
        "--user",
        "*",
        "--topic",
        "tmp.",
        "--prefixed",
        "--operation",
        "write,create",
        "--host",
        "192.0.2.7",
        "--deny",
    )
    assert users_cli.run("grant", *words)[0] == 0
    _, shown, _ = users_cli.run("list")
    assert [line.split() for line in shown.splitlines()] == [
        ["PRINCIPAL", "PERMISSION", "OPERATION", "RESOURCE", "NAME", "HOST"],
        ["User:*", "DENY", "CREATE", "TOPIC", "tmp.…", "192.0.2.7"],
        ["User:*", "DENY", "WRITE", "TOPIC", "tmp.…", "192.0.2.7"],
        ["User:admin", "ALLOW", "everything", "-", "-", "-"],
        ["User:alice", "ALLOW", "READ", "GROUP", "billing", "*"],
        ["User:alice", "ALLOW", "READ", "TOPIC", "orders", "*"],
    ]
    listed = json.loads(users_cli.run("list", "--json")[1])
    assert {"principal": "User:admin", "super_user": True} in listed["users"]
    assert len(listed["acls"]) == 4
    revoked = users_cli.run("revoke", "--user", "alice", "--topic", "orders", "--operation", "read")
    assert revoked == (0, "revoked: User:alice may READ TOPIC orders\n", "")
    left = {
        (acl.resource_type, acl.operation, acl.pattern_type, acl.permission) for acl in read_users(users_cli.file).acls
    }
    assert left == {
        (ResourceType.GROUP, Operation.READ, PatternType.LITERAL, Permission.ALLOW),
        (ResourceType.TOPIC, Operation.WRITE, PatternType.PREFIXED, Permission.DENY),
        (ResourceType.TOPIC, Operation.CREATE, PatternType.PREFIXED, Permission.DENY),
    }


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("add", "--user", "a b"), 1, "cannot be a user's name"),
        (("add", "--user", "x", "--password-file", "nowhere"), 1, "cannot read the password in nowhere"),
        (("add", "--user", "x", "--iterations", "2000000"), 2, "which clients refuse"),
        (("grant", "--user", "nobody", "--topic", "t", "--operation", "read"), 1, "there is no user 'nobody'"),
        (("grant", "--user", "alice", "--operation", "read"), 2, "give a user"),
        (("grant", "--topic", "t", "--operation", "read"), 2, "give a user"),
        (("grant", "--user", "alice", "--topic", "t", "--operation", "fly"), 2, "'fly' is not an operation"),
        (
            ("grant", "--user", "alice", "--group", "g", "--operation", "write"),
            2,
            "is not an operation on a group",
        ),
        (("grant", "--principal", "CN=x", "--topic", "t", "--operation", "read"), 2, "is not a principal"),
        (
            ("grant", "--user", "alice", "--topic", "t", "--operation", "read", "--deny", "--host", "10.0.0.0/8"),
            2,
            "--host: '10.0.0.0/8' is no address of one host",
        ),
        (("add", "--user", "x" * 201), 1, "a user's name has at most 200 characters"),
        (("revoke", "--user", "alice", "--topic", "t", "--operation", "read"), 1, "never granted: User:alice may READ"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_changes_nothing(
    users_cli: UsersCli, words: tuple[str, ...], code: int, said: str
) -> None:
    users_cli.run("add", "--user", "alice", stdin=PASSWORD)
    before = users_cli.file.read_text()
    ended, out, errors = users_cli.run(*words, stdin=PASSWORD)
    assert (ended, out, errors.count("\n")) == (code, "", 1), errors
    assert said in errors
    assert users_cli.file.read_text() == before


def test_an_empty_password_and_a_file_that_is_not_there(users_cli: UsersCli) -> None:
    assert "the password is empty" in users_cli.run("add", "--user", "x", stdin="\n")[2]
    assert not users_cli.file.exists()
    for words in (("list",), ("remove", "--user", "x")):
        assert "cannot read the users file" in users_cli.run(*words)[2]


def test_ctrl_d_at_the_prompt_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def ctrl_d(_prompt: str) -> str:
        raise EOFError

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr("getpass.getpass", ctrl_d)
    file = tmp_path / "users.json"
    assert main(["users", "add", "--file", str(file), "--user", "alice"]) == 1
    assert capsys.readouterr() == ("", "holdfast users add: no password was given\n")
    assert not file.exists()


def test_commands_at_the_same_time_do_not_undo_each_other(tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    command = [sys.executable, "-m", "holdfast", "users", "add", "--file", str(file), "--iterations", "4096", "--user"]
    children = [
        subprocess.Popen([*command, f"user-{number}"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        for number in range(4)
    ]
    for child in children:
        child.communicate(PASSWORD, timeout=60)
    assert [child.returncode for child in children] == [0] * 4
    assert set(read_users(file).credentials) == {f"user-{number}" for number in range(4)}


def test_the_pages_first_commands_print_what_it_says(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "security.md").read_text()
    (block,) = [one for one in re.findall(r"```console\n(.*?)```", page, re.DOTALL) if "users add" in one]
    parts = re.findall(r"^\$ holdfast (.*)\n((?:[^$].*\n)*)", block, re.MULTILINE)
    assert len(parts) == 3
    for command, output in parts:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *command.replace("users.json", str(tmp_path / "users.json")).split()],
            input=PASSWORD, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, output), done.stderr
