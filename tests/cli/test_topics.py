"""`holdfast topics`, on both servers."""

from __future__ import annotations

from tests.cli.conftest import Cli
from tests.client_compat.servers import Server
from tests.groups.topics import make_topic, produce
from tests.support.eventually import eventually


def row(cli: Cli, topic: str, *more: str) -> tuple[str, str] | None:
    rows = {one["TOPIC"]: (one["PARTITIONS"], one["REPLICATION-FACTOR"]) for one in cli.table("topics", "list", *more)}
    return rows.get(topic)


def test_a_topic_is_created_changed_and_deleted(server: Server, cli: Cli, topic: str) -> None:
    words = ("--topic", topic, "--partitions", "2", "--config", "retention.ms=3600000")
    assert cli.done("topics", "create", *words) == f"{topic}: created\n"
    eventually(lambda: row(cli, topic) == ("2", "1"), "the topic")
    produce(server, topic, 3, partitions=1)

    title, configs, header, *partitions = cli.done("topics", "describe", "--topic", topic).splitlines()
    assert title.startswith(f"{topic}: 2 partitions, replication factor 1, id ")
    assert configs == "configs: retention.ms=3600000"
    assert header.split() == ["PARTITION", "LEADER", "REPLICAS", "IN-SYNC", "LOG-START-OFFSET", "LOG-END-OFFSET"]
    assert [line.split() for line in partitions] == [["0", "1", "1", "1", "0", "3"], ["1", "1", "1", "1", "0", "0"]]

    more = ("--topic", topic, "--partitions", "4")
    assert cli.done("topics", "add-partitions", *more) == f"{topic}: has 4 partitions now\n"
    eventually(lambda: row(cli, topic) == ("4", "1"), "four partitions")
    assert "INVALID_PARTITIONS" in cli.refused("topics", "add-partitions", *more)

    assert cli.done("topics", "delete", "--topic", topic) == f"{topic}: deleted\n"
    eventually(lambda: row(cli, topic) is None, "it is gone")
    assert "there is no such topic" in cli.refused("topics", "delete", "--topic", topic)
    assert cli.done("topics", "delete", "--topic", topic, "--if-exists") == f"{topic}: gone\n"
    assert "it does not exist" in cli.refused("topics", "describe", "--topic", topic)


def test_json_has_the_documented_fields(server: Server, cli: Cli, topic: str) -> None:
    created = cli.json("topics", "create", "--topic", topic, "--partitions", "1")
    assert created == [{"topic": topic, "ok": True, "error": None, "message": None}]
    eventually(lambda: row(cli, topic) is not None, "the topic")
    (listed,) = [one for one in cli.json("topics", "list") if one["topic"] == topic]
    assert listed == {"topic": topic, "partitions": 1, "replication_factor": 1, "internal": False}
    (described,) = cli.json("topics", "describe", "--topic", topic)
    assert set(described) == {"topic", "topic_id", "internal", "replication_factor", "configs", "partitions"}
    fields = {"partition", "leader", "replicas", "in_sync", "log_start_offset", "log_end_offset"}
    assert set(described["partitions"][0]) == fields


def test_one_of_several_that_fails_is_said_and_the_others_are_made(server: Server, cli: Cli, topic: str) -> None:
    make_topic(server, topic)
    words = ("topics", "create", "--topic", topic, "--topic", f"{topic}-2")
    code, out, errors = cli.run(*words)
    assert (code, out) == (1, f"{topic}-2: created\n")
    assert errors == f"holdfast topics create: topic {topic!r}: TOPIC_ALREADY_EXISTS: it exists already\n"
    assert cli.done(*words, "--if-not-exists") == f"{topic}: there\n{topic}-2: there\n"


def test_topics_are_deleted_by_prefix(server: Server, cli: Cli, topic: str) -> None:
    names = [f"{topic}-{number:03}" for number in range(60)]  # more than one request takes
    cli.done("topics", "create", "--partitions", "1", *(word for name in names for word in ("--topic", name)))
    eventually(lambda: row(cli, names[-1]) is not None, "the topics")
    assert cli.done("topics", "delete", "--prefix", f"{topic}-").splitlines() == [f"{name}: deleted" for name in names]
    eventually(lambda: row(cli, names[-1]) is None, "they are gone")
    assert "no topic whose name begins with" in cli.refused("topics", "delete", "--prefix", f"{topic}-")
    assert cli.done("topics", "delete", "--prefix", f"{topic}-", "--if-exists") == ""


def test_the_brokers_own_topics_are_shown_when_asked_for(server: Server, cli: Cli, topic: str, group: str) -> None:
    make_topic(server, topic, 1)
    cli.done("groups", "reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    assert row(cli, "__consumer_offsets") is None
    assert row(cli, "__consumer_offsets", "--internal") is not None
