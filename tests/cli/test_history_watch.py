"""`holdfast groups history` and `holdfast groups watch`: what happened, what happens, and why."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.cli.processes import at_terminal, ended, line_of, lines_until, running, shown_until
from tests.client_compat.servers import Server
from tests.groups.topics import make_topic
from tests.holdfast_client.consumers import Watched, poll_until, watching
from tests.support.holdfast_broker import HoldfastBroker


@pytest.fixture
def ours(quick_holdfast: HoldfastBroker, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(quick_holdfast.bootstrap, capsys)


def come_and_go(server: Server, topic: str, group: str, **settings: Any) -> None:
    one = Watched(server, group, **settings).subscribe(topic)
    with watching(one):
        poll_until(lambda: one.partitions, "a member", one)


def test_history_shows_what_happened_and_why(quick_holdfast: HoldfastBroker, ours: Cli, topic: str, group: str) -> None:
    make_topic(quick_holdfast, topic, 1)
    come_and_go(quick_holdfast, topic, group, client_id="visitor")

    header, *lines = ours.done("groups", "history", "--group", group).splitlines()
    assert header.split() == [
        *("TIME", "GROUP", "GENERATION", "EPOCH", "EVENT", "CAUSE", "MEMBER", "UNASSIGNED-MS", "MOVED")
    ]
    assert "rebalance started  a new member joined" in lines[0]
    assert "visitor-" in lines[0]
    assert any("it left (the consumer is being closed)" in line for line in lines)
    events = ours.json("groups", "history", "--group", group)
    assert [event["kind"] for event in events][:3] == ["rebalance started", "generation formed", "assigned"]
    assert {"kind", "group_id", "at_ms", "offset", "generation", "cause", "cause_code"} <= set(events[0])
    assert len(events) == len(lines)

    assert ours.json("groups", "history", "--group", group, "--last", "2") == events[-2:]
    assert ours.json("groups", "history", "--group", group, "--last", "0") == []
    assert ours.json("groups", "history", "--group", group, "--since", "1h") == events
    assert ours.json("groups", "history", "--group", group, "--since", "2199-01-01T00:00:00Z") == []
    assert ours.done("groups", "history", "--group", f"{group}-missing").split() == header.split()
    assert {event["group_id"] for event in ours.json("groups", "history")} >= {group}


def test_history_is_followed_from_the_past_on_without_gap_or_repetition(
    quick_holdfast: HoldfastBroker, ours: Cli, topic: str, group: str
) -> None:
    make_topic(quick_holdfast, topic, 1)
    come_and_go(quick_holdfast, topic, group)
    words = ["groups", "history", "--group", group, "--follow", "--json", "--bootstrap-server", ours.bootstrap]
    with running(*words) as process:
        reported = lines_until(process, b"became empty")
        come_and_go(quick_holdfast, topic, group)
        reported += lines_until(process, b"became empty")
        assert ended(process, signal.SIGINT) == (130, b"", b"")
    assert [json.loads(line) for line in reported] == ours.json("groups", "history", "--group", group)


def test_a_server_without_a_ledger_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with HoldfastBroker() as fresh:
        assert "has no ledger" in Cli(fresh.bootstrap, capsys).refused("groups", "history")


@pytest.mark.real
@pytest.mark.timeout(300)
def test_apache_kafka_has_no_ledger_and_the_sentence_says_so(
    quick_kafka: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "Apache Kafka keeps none" in Cli(quick_kafka.bootstrap, capsys).refused("groups", "history")


def test_each_change_of_a_watched_group_is_a_line(server: Server, topic: str, group: str) -> None:
    make_topic(server, topic, 1)
    with running(
        *("groups", "watch", "--group", group, "--interval", "0.2", "--json"),
        *("--bootstrap-server", server.bootstrap),
    ) as process:
        assert json.loads(line_of(process))["state"] in ("Dead", "Empty")
        one = Watched(server, group, group_instance_id="node-1", session_timeout_ms=60_000).subscribe(topic)
        with watching(one):
            poll_until(lambda: one.partitions, "a member", one)
            reported = [json.loads(line) for line in lines_until(process, b'"state":"Stable"')]
        _, rest, errors = ended(process, signal.SIGINT)
    assert errors == b""
    assert {change["group_id"] for change in reported} == {group}
    changes = [(change["change"], change.get("member")) for change in reported if change["change"] != "event"]
    assert ("joined", "node-1") in changes
    (assigned,) = [change for change in reported if change["change"] == "assigned"]
    assert assigned["assignment"] == f"{topic}(0)"
    causes = {change["event"]["cause_code"] for change in reported if change["change"] == "event"}
    assert ("member_joined" in causes) == isinstance(server, HoldfastBroker)
    assert b'"left"' not in rest, "a static member that ends stays a member"


def test_a_member_that_leaves_is_described_in_words(server: Server, topic: str, group: str) -> None:
    make_topic(server, topic, 1)
    words = ["groups", "watch", "--group", group, "--interval", "0.2", "--bootstrap-server", server.bootstrap]
    with running(*words) as process:
        line_of(process)
        one = Watched(server, group, client_id="visitor").subscribe(topic)
        with watching(one):
            poll_until(lambda: one.partitions, "a member", one)
            joined = lines_until(process, b"Stable, 1 member")
        left = lines_until(process, b"Empty, 0 members")
    name = one_of(joined, b" joined").split()[-2]
    assert name.startswith(b"visitor-")
    assert one_of(left, name + b" left")


def test_a_terminal_redraws_the_whole_group_with_its_events(
    quick_holdfast: HoldfastBroker, topic: str, group: str
) -> None:
    make_topic(quick_holdfast, topic, 1)
    come_and_go(quick_holdfast, topic, group, client_id="earlier")
    words = ["groups", "watch", "--group", group, "--interval", "0.2", "--bootstrap-server", quick_holdfast.bootstrap]
    with at_terminal(*words) as (process, terminal):
        first = shown_until(terminal, b"became empty")
        assert first.startswith(b"\x1b[H\x1b[J" + f"{group}: Empty, 0 members, lag 0".encode())
        one = Watched(quick_holdfast, group, client_id="visitor").subscribe(topic)
        with watching(one):
            poll_until(lambda: one.partitions, "a member", one)
            later = shown_until(terminal, f"{group}: Stable, 1 member,".encode())
            later += shown_until(terminal, f"{topic}(0)".encode())
        assert b"CONSUMER-ID" in later and b"visitor-" in later
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


def one_of(lines: list[bytes], end: bytes) -> bytes:
    (found,) = [line for line in lines if line.rstrip().endswith(end)]
    return found
