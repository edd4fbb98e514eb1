"""`holdfast groups reset-offsets`: shows by default, does when asked, and refuses while the group works."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from holdfast.client.admin import Admin
from tests.cli.conftest import Cli
from tests.client_compat.servers import Server
from tests.groups.topics import committed, make_topic, produce
from tests.holdfast_client.consumers import Watched, poll_until, watching

DRY_RUN = "holdfast groups reset-offsets: nothing was changed: this was a dry run; add --execute to do it\n"


@pytest.fixture
def at_five(server: Server, topic: str, group: str) -> None:
    """Ten records in each of two partitions, and a group in the middle."""
    make_topic(server, topic, 2)
    produce(server, topic, 10, partitions=2)
    with Admin({"bootstrap.servers": server.bootstrap}) as admin:
        admin.alter_offsets(group, {(topic, 0): 5, (topic, 1): 5})


def reset(cli: Cli, group: str, *how: str) -> dict[int, tuple[str, str]]:
    """By partition, the old and the new offset of what was done."""
    rows = cli.table("groups", "reset-offsets", "--group", group, *how, "--execute")
    return {int(row["PARTITION"]): (row["CURRENT-OFFSET"], row["NEW-OFFSET"]) for row in rows}


@pytest.mark.usefixtures("at_five")
def test_without_execute_it_only_shows_what_would_change(server: Server, cli: Cli, topic: str, group: str) -> None:
    words = ("groups", "reset-offsets", "--group", group, "--all-topics", "--to-earliest")
    code, shown, errors = cli.run(*words)
    assert (code, errors) == (0, DRY_RUN)
    assert committed(server, group, topic) == {0: 5, 1: 5}

    assert cli.done(*words, "--execute") == shown
    assert [line.split() for line in shown.splitlines()] == [
        ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"],
        [group, topic, "0", "5", "0"],
        [group, topic, "1", "5", "0"],
    ]
    assert committed(server, group, topic) == {0: 0, 1: 0}


@pytest.mark.usefixtures("at_five")
@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 10),
        (["--to-offset", "7"], 7),
        (["--to-offset", "700"], 10),
        (["--shift-by", "-2"], 3),
        (["--shift-by", "2"], 7),
        (["--to-datetime", "2001-01-01T00:00:00Z"], 0),
        (["--to-datetime", "in an hour"], 10),
        (["--by-duration", "1h"], 0),
        (["--by-duration", "PT0S"], 10),
    ],
)
def test_every_way_to_say_where(
    server: Server, cli: Cli, topic: str, group: str, how: list[str], expected: int
) -> None:
    if how[-1] == "in an hour":
        how = [how[0], datetime.fromtimestamp(time.time() + 3600, UTC).isoformat()]
    assert reset(cli, group, "--topic", topic, *how) == {0: ("5", str(expected)), 1: ("5", str(expected))}
    assert committed(server, group, topic) == {0: expected, 1: expected}


@pytest.mark.usefixtures("at_five")
def test_some_partitions_and_json(server: Server, cli: Cli, topic: str, group: str) -> None:
    reported = cli.json(
        "groups", "reset-offsets", "--group", group, "--topic", f"{topic}:1", "--to-latest", "--execute"
    )
    partition = {"topic": topic, "partition": 1, "current_offset": 5, "new_offset": 10}
    assert reported == {"group_id": group, "executed": True, "partitions": [partition]}
    assert committed(server, group, topic) == {0: 5, 1: 10}


@pytest.mark.usefixtures("at_five")
def test_what_cannot_be_is_one_sentence(cli: Cli, topic: str, group: str) -> None:
    words = ("groups", "reset-offsets", "--group", group)
    assert "has partitions 0 to 1, and no 2" in cli.refused(*words, "--topic", f"{topic}:2", "--to-earliest")
    assert "it does not exist" in cli.refused(*words, "--topic", f"{topic}-no", "--to-earliest")
    nobody = ("groups", "reset-offsets", "--group", f"{group}-no")
    assert "has committed to no topic" in cli.refused(*nobody, "--all-topics", "--to-earliest")
    assert "no offset of" in cli.refused(*nobody, "--topic", topic, "--shift-by", "1")


def test_a_group_at_work_is_left_alone(server: Server, cli: Cli, topic: str, group: str) -> None:
    make_topic(server, topic)
    produce(server, topic, 10)
    one = Watched(server, group).subscribe(topic)
    words = ("groups", "reset-offsets", "--group", group, "--topic", topic, "--to-earliest")
    with watching(one):
        poll_until(lambda: len(one.records) == 40, "all records", one)
        one.consumer.commit(asynchronous=False)
        sentence = cli.refused(*words, "--execute")
        assert f"group {group!r} has members (its state is Stable): stop them" in sentence
        assert committed(server, group, topic) == dict.fromkeys(range(4), 10)
        code, out, errors = cli.run(*words)
        assert (code, len(out.splitlines()), errors.endswith(DRY_RUN)) == (0, 5, True)
        assert "has members" in errors, "the dry run says that it could not be done now"
    assert cli.run(*words, "--execute")[0] == 0
    assert committed(server, group, topic) == dict.fromkeys(range(4), 0)
