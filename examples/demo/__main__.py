"""The demo of `make demo`: `python -m examples.demo [--out build/demo]`.

It takes four minutes, and longer on a busy machine.

A broker, a topic under steady load, two Spark queries and a plain consumer in one group. Each member is restarted in
turn; then more members join. First with static members and registration, then without as the control.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from examples.demo.collect_figures import Figures, collect_figures
from examples.demo.ownership import investigate, owned, picture
from examples.demo.processes import DemoFailed, broker
from examples.demo.report import print_table, unexpected, write_report
from examples.demo.scenario import SESSION_MS, STATIC_SESSION_MS, Log, Scenario
from examples.demo.spark_home import make_spark_home
from holdfast import HoldfastError

FORENSICS: Final = "forensics"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="directory for the report")
    out: Path = parser.parse_args().out
    signal.signal(signal.SIGTERM, _interrupt)
    began = time.monotonic()
    work = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    out.mkdir(parents=True, exist_ok=True)
    make_spark_home(work / "spark")
    os.environ["SPARK_HOME"] = str(work / "spark")
    os.environ["TMPDIR"] = str(work)  # so that temporary files of killed queries are deleted, too
    try:
        halves = _run_demo(work, out, _make_log(began))
    except (DemoFailed, HoldfastError, KafkaException) as failure:
        print(f"\nthe demo failed: {failure}\nthe output of its processes is in {work}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        shutil.rmtree(work, ignore_errors=True)
        return 130
    seconds = time.monotonic() - began
    wrong = unexpected(halves)
    write_report(out / "report.json", halves, seconds, wrong)
    print()
    print_table(halves)
    print(f"\n{seconds:.0f} s. All figures: {out / 'report.json'}")
    print(f"Owners over time: {out / 'static.png'}, {out / 'dynamic.png'}, {out / FORENSICS / 'timeline.html'}")
    for one in wrong:
        print(f"not as expected: {one}", file=sys.stderr)
    if not wrong:
        shutil.rmtree(work, ignore_errors=True)
    return 1 if wrong else 0


def _run_demo(work: Path, out: Path, say: Log) -> list[Figures]:
    with broker(work / "data", work / "broker.log") as bootstrap:
        print(f"a broker on {bootstrap}, without a JVM; real Kafka clients and Spark queries read a topic under load")
        with Scenario(bootstrap, work, True, say) as static, Scenario(bootstrap, work, False, say) as control:
            print(f"\nstatic members, with a session timeout of {STATIC_SESSION_MS // 60_000} minutes")
            halves = [static.run(meanwhile=control.prepare)]
            print(f"\nthe control: dynamic members, with a session timeout of {SESSION_MS // 1000} s")
            halves.append(control.run())
        print("\nforensics")
        say("a Spark job analyzes the history of both groups")
        report = out / FORENSICS
        investigate(bootstrap, [played.group for played in halves], report, work / "forensics.log")
        for played in halves:
            (out / f"{played.kind}.png").write_bytes(picture(report, played))
        return [collect_figures(bootstrap, played, owned(report, played)) for played in halves]


def _make_log(began: float) -> Log:
    def say(what: str) -> None:
        print(f"{time.monotonic() - began:5.0f} s  {what}", flush=True)

    return say


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
