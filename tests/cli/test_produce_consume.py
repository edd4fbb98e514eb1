"""`holdfast produce` and `holdfast consume`, on both servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.cli.processes import ended, running
from tests.client_compat.servers import Server
from tests.groups.topics import CLIENT, committed, make_topic
from tests.support.eventually import eventually

PATIENTLY = ("--timeout", "60")
"""The number of records ends a read, not the time without one: the first may take a while to come."""


def file_of(directory: Path, text: str) -> str:
    path = directory / "lines.txt"
    path.write_text(text)
    return str(path)


def all_of(server: Server, topic: str, partitions: int = 1) -> tuple[str, ...]:
    """What has `consume` print all records that the topic has: as many as its watermarks say."""
    marks = [CLIENT.watermarks(server.bootstrap, topic, partition) for partition in range(partitions)]
    count = sum(high - low for low, high in marks)
    return ("--topic", topic, "--from-beginning", "--max-messages", str(count), *PATIENTLY)


def consumed(cli: Cli, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in cli.done("consume", "--json", *arguments).splitlines()]


def test_lines_become_records_with_keys_headers_and_a_partition(
    server: Server, cli: Cli, topic: str, tmp_path: Path
) -> None:
    make_topic(server, topic, 2)
    lines = file_of(tmp_path, "a:1\nb:2:3\n:\nwört:☃")
    words = ("--topic", topic, "--key-separator", ":", "--header", "x=1", "--header", "y=z=", "--partition", "1")
    code, out, errors = cli.run("produce", lines, *words)
    assert (code, out, errors) == (0, "", f"4 records to {topic}\n")

    everything = all_of(server, topic, partitions=2)
    records = consumed(cli, *everything)
    headers = [{"name": "x", "value": "1"}, {"name": "y", "value": "z="}]
    assert [(one["key"], one["value"]) for one in records] == [("a", "1"), ("b", "2:3"), ("", ""), ("wört", "☃")]
    assert [(one["topic"], one["partition"], one["offset"]) for one in records] == [(topic, 1, n) for n in range(4)]
    assert all(one["headers"] == headers for one in records)
    assert set(records[0]) == {"topic", "partition", "offset", "timestamp", "key", "value", "headers"}
    template = "{partition}/{offset} {key}={value}\\n"
    assert cli.done("consume", *everything, "--format", template).splitlines()[0] == "1/0 a=1"


def test_without_a_key_the_line_is_the_value(server: Server, cli: Cli, topic: str, tmp_path: Path) -> None:
    make_topic(server, topic, 1)
    assert cli.run("produce", file_of(tmp_path, "a:1\n\nlast"), "--topic", topic)[0] == 0
    assert [(one["key"], one["value"]) for one in consumed(cli, *all_of(server, topic))] == [
        (None, "a:1"),
        (None, ""),
        (None, "last"),
    ]


def test_a_line_without_its_key_fails_and_the_others_are_stored(
    server: Server, cli: Cli, topic: str, tmp_path: Path
) -> None:
    make_topic(server, topic, 1)
    lines = file_of(tmp_path, "a\t1\n" + "none\n" * 7 + "b\t2\n")
    code, out, errors = cli.run("produce", lines, "--topic", topic, "--key-separator", "\\t", "--json")
    assert (code, json.loads(out)) == (1, {"topic": topic, "produced": 2, "failed": 7})
    complaints = errors.splitlines()
    assert complaints[0] == "holdfast produce: line 2 has no '\\t'"
    assert (len(complaints), complaints[-1]) == (6, "holdfast produce: and 2 more")
    assert [one["value"] for one in consumed(cli, *all_of(server, topic))] == ["1", "2"]


def test_a_record_that_the_broker_refuses_is_a_failure(server: Server, cli: Cli, topic: str, tmp_path: Path) -> None:
    cli.done("topics", "create", "--topic", topic, "--partitions", "1", "--config", "max.message.bytes=300")
    eventually(lambda: cli.run("topics", "describe", "--topic", topic)[0] == 0, "the topic")
    code, _, errors = cli.run("produce", file_of(tmp_path, "x" * 1000), "--topic", topic)
    assert code == 1
    assert errors.startswith("holdfast produce: line 1 was not stored: Broker: Message size too large")
    assert errors.endswith(f"0 records to {topic}, 1 failed\n")
    assert cli.run("produce", file_of(tmp_path, "x" * 10), "--topic", topic)[0] == 0


def test_a_line_that_the_client_refuses_fails_and_the_others_are_stored(
    server: Server, cli: Cli, topic: str, tmp_path: Path
) -> None:
    make_topic(server, topic, 1)
    lines = file_of(tmp_path, "1\n2\n" + "x" * 2_000_000 + "\n3\n")
    code, _, errors = cli.run("produce", lines, "--topic", topic, "--set", "linger.ms=200")
    assert code == 1
    complaint, counts = errors.splitlines()
    assert complaint.startswith("holdfast produce: line 3 was not stored: ")
    assert complaint.endswith("Message size too large")
    assert counts == f"3 records to {topic}, 1 failed"
    assert [one["value"] for one in consumed(cli, *all_of(server, topic))] == ["1", "2", "3"]


def test_a_producer_that_can_send_nothing_says_so_of_each_line(
    server: Server, cli: Cli, topic: str, tmp_path: Path
) -> None:
    make_topic(server, topic, 1)
    words = ("--topic", topic, "--set", "transactional.id=nobody-begins-a-transaction")
    code, _, errors = cli.run("produce", file_of(tmp_path, "1\n2\n"), *words)
    assert code == 1
    first, second, counts = errors.splitlines()
    assert first.startswith("holdfast produce: line 1 was not stored: ")
    assert second.startswith("holdfast produce: line 2 was not stored: ")
    assert counts == f"0 records to {topic}, 2 failed"


def test_a_partition_that_is_not_there_is_refused(server: Server, cli: Cli, topic: str, tmp_path: Path) -> None:
    make_topic(server, topic, 2)
    sentence = cli.refused("produce", file_of(tmp_path, "x"), "--topic", topic, "--partition", "2")
    assert sentence.endswith(f"topic {topic!r} has partitions 0 to 1, and no 2")


def test_a_topic_that_is_not_there(cli: Cli, topic: str, group: str) -> None:
    assert "it does not exist" in cli.refused("consume", "--topic", topic)
    assert "it does not exist" in cli.refused("consume", "--topic", topic, "--group", group)


def test_an_unknown_setting_is_refused(server: Server, cli: Cli, topic: str, group: str) -> None:
    make_topic(server, topic, 1)
    for words in (["produce", "/dev/null"], ["consume"], ["consume", "--group", group]):
        code, out, errors = cli.run(*words, "--topic", topic, "--set", "nobody.knows=1")
        assert (code, out, errors.count("\n")) == (2, "", 1)
        assert "nobody.knows" in errors


def test_a_member_commits_exactly_what_it_printed(
    server: Server, cli: Cli, topic: str, group: str, tmp_path: Path
) -> None:
    make_topic(server, topic, 1)
    cli.run("produce", file_of(tmp_path, "1\n2\n3\n4\n5\n"), "--topic", topic)
    member = ("--topic", topic, "--group", group, "--from-beginning")

    assert cli.done("consume", *member, "--max-messages", "2") == "1\n2\n"
    assert committed(server, group, topic) == {0: 2}
    assert cli.done("consume", *member, "--max-messages", "3", *PATIENTLY) == "3\n4\n5\n"
    assert committed(server, group, topic) == {0: 5}
    assert cli.done("consume", *member, "--timeout", "1") == "", "there are no more"
    assert committed(server, group, topic) == {0: 5}
    # and one that is no member begins again and commits nothing
    assert cli.done("consume", "--topic", topic, "--from-beginning", "--max-messages", "2") == "1\n2\n"
    assert committed(server, group, topic) == {0: 5}


def test_a_static_member_stays_in_the_group_when_it_ends(
    server: Server, cli: Cli, topic: str, group: str, tmp_path: Path
) -> None:
    make_topic(server, topic, 1)
    cli.run("produce", file_of(tmp_path, "1\n"), "--topic", topic)
    words = ("consume", "--topic", topic, "--group", group, "--from-beginning")
    assert cli.done(*words, "--instance-id", "node-1", "--max-messages", "1", *PATIENTLY) == "1\n"
    (member,) = cli.json("groups", "describe", "--group", group, "--members")[0]["members"]
    assert (member["instance_id"], member["client_id"]) == ("node-1", "holdfast-cli")

    removed = cli.json("groups", "remove-members", "--group", group, "--instance-ids", "node-1")
    assert [one["ok"] for one in removed] == [True]
    assert cli.done(*words, "--timeout", "1") == "", "there are no more"
    # and the control: this was a dynamic member, which leaves
    assert cli.json("groups", "describe", "--group", group, "--members")[0]["members"] == []


def test_without_from_beginning_only_new_records_are_printed(
    server: Server, cli: Cli, topic: str, tmp_path: Path
) -> None:
    make_topic(server, topic, 1)
    cli.run("produce", file_of(tmp_path, "old\n"), "--topic", topic)
    assert cli.done("consume", "--topic", topic, "--timeout", "1") == ""
    words = ["consume", "--topic", topic, "--bootstrap-server", server.bootstrap, "--max-messages", "1"]
    with running(*words) as process:
        new = file_of(tmp_path, "new\n")

        def is_over() -> bool:
            cli.run("produce", new, "--topic", topic)
            return process.poll() is not None

        eventually(is_over, "a record that came after it")
        assert ended(process) == (0, b"new\n", b"")


@pytest.mark.parametrize("words", [[], ["--group"]], ids=["alone", "member"])
def test_bytes_go_through_unchanged(server: Server, topic: str, group: str, words: list[str]) -> None:
    make_topic(server, topic, 1)
    lines = b"\xff\xfe:\x00\r\n" + bytes(set(range(256)) - {10}) + b"\n"
    to = ["--topic", topic, "--bootstrap-server", server.bootstrap]
    with running("produce", *to) as producing:
        assert producing.stdin is not None
        producing.stdin.write(lines)
        code, out, errors = ended(producing)
        assert (code, out, errors) == (0, b"", f"2 records to {topic}\n".encode())
    member = [*words, group] if words else []
    with running("consume", *to, "--from-beginning", "--max-messages", "2", *member) as consuming:
        assert ended(consuming) == (0, lines, b"")
