"""Where the Apache Kafka beside us lies on disk, and how one of its Java programs is run."""

import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
LOG_CONFIG = REPOSITORY / "tests" / "java" / "log4j2.xml"

_INSTALL_TIMEOUT_S = 900  # a cold Maven resolve plus, on a bare machine, Java itself
_TOOL_TIMEOUT_S = 120


class KafkaUnavailable(Exception):
    """Apache Kafka cannot be run on this machine; the message is one line that says why."""


@dataclass(frozen=True)
class KafkaDistribution:
    java: Path
    libs: Path

    def command(self, main_class: str, *args: str, jvm_options: tuple[str, ...] = ()) -> list[str]:
        """The command line that runs ``main_class`` of this Kafka."""
        log_config = f"-Dlog4j2.configurationFile={LOG_CONFIG}"
        return [str(self.java), *jvm_options, log_config, "-cp", f"{self.libs}/*", main_class, *args]


@cache
def kafka_distribution() -> KafkaDistribution:
    """The pinned Kafka, brought into the cache if it is not there yet."""
    java = run_script("java-ensure")
    libs = run_script("kafka-install")
    return KafkaDistribution(java=Path(java), libs=Path(libs))


def kafka_tool(main_class: str, *args: str) -> str:
    """Run a Java tool of Kafka, such as ``org.apache.kafka.tools.DumpLogSegments``, and return its stdout."""
    command = kafka_distribution().command(
        main_class, *args, jvm_options=("-Xmx256M", "-XX:TieredStopAtLevel=1", "-Dlog.level=WARN")
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TOOL_TIMEOUT_S, check=False)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()
        raise RuntimeError(f"{main_class} ended with exit code {done.returncode}:\n{said}")
    return done.stdout


def run_script(name: str, *arguments: str) -> str:
    """What a script of the repository prints; KafkaUnavailable with its last words when it fails."""
    script = REPOSITORY / "scripts" / name
    done = subprocess.run([script, *arguments], capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S, check=False)
    if done.returncode != 0:
        last_lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise KafkaUnavailable(f"scripts/{name}: {last_lines[-1]}")
    return done.stdout.strip()
