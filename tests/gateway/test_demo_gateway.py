"""`make demo-gateway`, without the start of its cluster: it shows what it says."""

from pathlib import Path

import pytest

from examples.demo_gateway import play, unexpected
from tests.support.eventually import eventually
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_distribution import REPOSITORY
from tests.support.process_tree import command_line

pytestmark = [pytest.mark.real, pytest.mark.timeout(1300)]


def test_the_demo_shows_what_it_says_and_leaves_no_process_behind(
    kafka_cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # given
    monkeypatch.chdir(REPOSITORY)  # as `make` does
    said: list[str] = []

    # when
    figures = play(kafka_cluster, tmp_path, said.append)

    # then
    assert unexpected(figures) == []
    assert figures.records > 0 and figures.gateway_away_ms > 0
    printed = capsys.readouterr().out
    assert "$ holdfast groups add-members --group billing --instance-ids consumer-3,consumer-4,consumer-5" in printed
    assert "the ledger has 1 rebalance for 3 new members" in said
    eventually(lambda: not running(tmp_path), "the end of all that it has started")


def running(directory: Path) -> list[str]:
    """The command lines with its name in them. A killed process may take a moment to end."""
    lines = [command_line(int(path.name)) for path in Path("/proc").glob("[0-9]*")]
    return [line for line in lines if str(directory) in line]
