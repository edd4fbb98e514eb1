"""spark-submit to a real cluster, whose workers know no Holdfast but what the application brings along.

This is the way that docs/spark.md describes.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.groups.admins import ConfluentAdmin, DescribedMember
from tests.spark.records import produced
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.spark_cluster import PACKAGES, Application, SparkCluster, bare_python, pack

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PATIENCE_S = 120
PARTITIONS = 3
INSTANCE_ID = "nightly-1"


def test_executors_read_with_the_holdfast_that_the_application_brings_along(
    quick_holdfast: HoldfastBroker, topic: str, group: str, tmp_path: Path
) -> None:
    # given a cluster whose workers cannot import Holdfast, an archive that holds it, and a topic
    worker_python = bare_python(tmp_path / "worker")
    assert "No module named 'holdfast'" in _stderr_of_importing_holdfast(worker_python)
    pack(tmp_path / "packages.zip")
    values = produced(quick_holdfast.bootstrap, topic, PARTITIONS, 3_000)
    source = {
        "kafka.bootstrap.servers": quick_holdfast.bootstrap,
        "kafka.group.id": group,
        "kafka.group.instance.id": INSTANCE_ID,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "1000",
    }

    # when an application is submitted with the archive
    brought = {
        "spark.archives": f"{tmp_path / 'packages.zip'}#{PACKAGES}",
        "spark.executorEnv.PYTHONPATH": PACKAGES,
        "spark.executor.memory": "512m",
    }
    app = json.dumps({"directory": str(tmp_path), "source": source})
    with (
        SparkCluster(tmp_path, worker_python) as cluster,
        cluster.submitted("on_cluster.py", [app], brought) as application,
    ):
        # then its query joins the group, and commits what it has read
        (reader_pid,) = eventually(lambda: _readers(application), "the query has begun", PATIENCE_S)
        eventually(lambda: _holds_all(application, quick_holdfast, group), "the query is the member", PATIENCE_S)
        whole = {partition: len(values) // PARTITIONS for partition in range(PARTITIONS)}
        eventually(
            lambda: ConfluentAdmin().offsets(quick_holdfast.bootstrap, group, topic) == whole, "committed", PATIENCE_S
        )
        (tmp_path / "stop").touch()
        assert application.end(PATIENCE_S) == 0, application.log_text[-4000:]

        # and the rows are what was produced, each once, read on the executors with the Holdfast of the archive
        rows = _rows(tmp_path / "rows")
        assert sorted(row["value"] for row in rows) == sorted(values)
        seen_by = [json.loads(row["seen_by"]) for row in rows]
        assert {one["python"] for one in seen_by} == {str(worker_python)}
        assert reader_pid not in {one["pid"] for one in seen_by}
        for one in seen_by:
            assert Path(one["holdfast"]).is_relative_to(cluster.work_dir)


def _readers(application: Application) -> list[int]:
    application.assert_runs()
    return application.reader_pids()


def _holds_all(application: Application, server: HoldfastBroker, group: str) -> bool:
    application.assert_runs()
    members = ConfluentAdmin().describe(server.bootstrap, group).members
    return [_member(member) for member in members] == [(INSTANCE_ID, frozenset(range(PARTITIONS)))]


def _member(member: DescribedMember) -> tuple[str | None, frozenset[int]]:
    return member.instance_id, member.partitions


def _stderr_of_importing_holdfast(python: Path) -> str:
    done = subprocess.run([python, "-c", "import holdfast"], capture_output=True, text=True, timeout=60, check=False)
    return done.stderr


def _rows(directory: Path) -> list[dict[str, Any]]:
    """What the query has written; Spark's journal of it names the files."""
    return [json.loads(line) for file in directory.glob("part-*.json") for line in file.read_text().splitlines()]
