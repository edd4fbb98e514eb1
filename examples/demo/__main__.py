"""What `make demo` shows, `python -m examples.demo [--out build/demo]`.

It takes four minutes, and longer on a busy machine.

A broker with its log, a topic under steady load, two Spark queries and a plain consumer in one group. Each is restarted
in turn; then the group grows. First with seats and an announcement, then without, as the control.
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

from examples.demo.acts import SEAT_SESSION_MS, SESSION_MS, Half, Say
from examples.demo.counting import Counted, count
from examples.demo.owners import investigate, owned, picture
from examples.demo.processes import DemoFailed, broker
from examples.demo.report import complaints, print_table, write_report
from examples.demo.spark_home import make_spark_home
from holdfast import HoldfastError

FORENSICS: Final = "forensics"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="where the report goes")
    out: Path = parser.parse_args().out
    signal.signal(signal.SIGTERM, _interrupt)
    began = time.monotonic()
    work = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    out.mkdir(parents=True, exist_ok=True)
    make_spark_home(work / "spark")
    os.environ["SPARK_HOME"] = str(work / "spark")
    os.environ["TMPDIR"] = str(work)  # so that what a killed query leaves goes with the rest
    try:
        halves = _play(work, out, _saying(began))
    except (DemoFailed, HoldfastError, KafkaException) as failure:
        print(f"\nthe demo failed: {failure}\nwhat its processes said is in {work}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        shutil.rmtree(work, ignore_errors=True)
        return 130
    seconds = time.monotonic() - began
    wrong = complaints(halves)
    write_report(out / "report.json", halves, seconds, wrong)
    print()
    print_table(halves)
    print(f"\n{seconds:.0f} s. All figures: {out / 'report.json'}")
    print(
        f"Who owned which partition: {out / 'static.png'}, {out / 'dynamic.png'}, {out / FORENSICS / 'timeline.html'}"
    )
    for one in wrong:
        print(f"not as expected: {one}", file=sys.stderr)
    if not wrong:
        shutil.rmtree(work, ignore_errors=True)
    return 1 if wrong else 0


def _play(work: Path, out: Path, say: Say) -> list[Counted]:
    with broker(work / "data", work / "broker.log") as bootstrap:
        print(f"a broker on {bootstrap}, without a JVM; what follows is real: Kafka clients, Spark, a topic under load")
        with Half(bootstrap, work, True, say) as static, Half(bootstrap, work, False, say) as control:
            print(f"\nseats, kept for {SEAT_SESSION_MS // 60_000} minutes: nobody takes the place of one who is away")
            halves = [static.play(meanwhile=control.prepare)]
            print(f"\nthe same without seats, as the control, and sessions of {SESSION_MS // 1000} s")
            halves.append(control.play())
        print("\nand then")
        say("forensics look at what is left of it")
        report = out / FORENSICS
        investigate(bootstrap, [played.group for played in halves], report, work / "forensics.log")
        for played in halves:
            (out / f"{played.kind}.png").write_bytes(picture(report, played))
        return [count(bootstrap, played, owned(report, played)) for played in halves]


def _saying(began: float) -> Say:
    def say(what: str) -> None:
        print(f"{time.monotonic() - began:5.0f} s  {what}", flush=True)

    return say


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
