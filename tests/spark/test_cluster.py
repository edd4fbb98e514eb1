"""spark-submit to a real cluster, whose workers know no Holdfast but what the application brings along.

This is the way that docs/spark.md describes, and the application is examples/spark/cluster_app.py.
"""

import subprocess
from pathlib import Path

import pyarrow.dataset
import pytest

from tests.groups.admins import ConfluentAdmin, DescribedMember
from tests.spark.records import produced
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.kafka_distribution import REPOSITORY
from tests.support.spark_cluster import PACKAGES, SparkCluster, bare_python, pack

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

APP = REPOSITORY / "examples" / "spark" / "cluster_app.py"
PARTITIONS = 2
INSTANCE_ID = "nightly-1"


def test_two_workers_read_with_the_holdfast_that_the_application_brings_along(
    quick_holdfast: HoldfastBroker, topic: str, group: str, tmp_path: Path
) -> None:
    # given two workers that cannot import Holdfast, an archive that holds it, and a topic
    worker_python = bare_python(tmp_path / "worker")
    assert "No module named 'holdfast'" in _stderr_of_importing_holdfast(worker_python)
    pack(tmp_path / "packages.zip")
    values = produced(quick_holdfast.bootstrap, topic, PARTITIONS, 3_000)

    # when the application is submitted with the archive
    settings = {
        "spark.archives": f"{tmp_path / 'packages.zip'}#{PACKAGES}",
        "spark.executorEnv.PYTHONPATH": PACKAGES,
        "spark.executor.memory": "512m",
        # The executors leave bytecode where they import modules from.
        "spark.executorEnv.PYTHONDONTWRITEBYTECODE": "",
        # No task starts before the cores of both workers are there.
        "spark.cores.max": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1",
    }
    about = {"topic": topic, "group": group, "instance-id": INSTANCE_ID, "bootstrap-server": quick_holdfast.bootstrap}
    paths = {"output": tmp_path / "rows", "checkpoint": tmp_path / "checkpoint"}
    arguments = [part for name, value in {**about, **paths}.items() for part in (f"--{name}", str(value))]
    with SparkCluster(tmp_path, worker_python, workers=2) as cluster:
        cluster.submit(APP, arguments, settings, within_s=240)

        # then the rows are what was produced, each once
        written = pyarrow.dataset.dataset(tmp_path / "rows", format="parquet").to_table()
        assert sorted(written["value"].to_pylist()) == sorted(values)

        # and tasks ran on both workers, with the Holdfast of the archive
        for work_dir in cluster.work_dirs:
            (executor,) = work_dir.glob("app-*/*")
            assert "Finished task" in (executor / "stderr").read_text(errors="replace")
            assert list((executor / PACKAGES / "holdfast" / "spark" / "__pycache__").glob("fetching.*.pyc"))

    # and the query was the member of the group, and has committed what it has read
    bootstrap, whole = quick_holdfast.bootstrap, dict.fromkeys(range(PARTITIONS), len(values) // PARTITIONS)
    assert ConfluentAdmin().offsets(bootstrap, group, topic) == whole
    members = ConfluentAdmin().describe(bootstrap, group).members
    assert [_member(one) for one in members] == [(INSTANCE_ID, frozenset(range(PARTITIONS)))]


def _member(member: DescribedMember) -> tuple[str | None, frozenset[int]]:
    return member.instance_id, member.partitions


def _stderr_of_importing_holdfast(python: Path) -> str:
    done = subprocess.run([python, "-c", "import holdfast"], capture_output=True, text=True, timeout=60, check=False)
    return done.stderr
