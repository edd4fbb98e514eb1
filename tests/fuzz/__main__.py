"""Fuzzing for a while: `make fuzz MINUTES=10`, or

    python -m tests.fuzz --minutes 10 --target coordinator   one target alone
    python -m tests.fuzz --minutes 30 --keep                 add what is worth keeping to the corpus, minimised
    python -m tests.fuzz --seed                              begin the corpus again, from our own encoders

Ends with one line for each target. An input that broke something is printed as a line for the corpus file, and the
exit code is 1.
"""

from __future__ import annotations

import argparse
import base64
import logging
import sys
import tempfile
from pathlib import Path

from tests.fuzz import packed_corpus
from tests.fuzz.campaign import fuzz
from tests.fuzz.minimizing import minimised
from tests.fuzz.targets import TARGETS, Target


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="coverage-guided fuzzing")
    parser.add_argument("--minutes", type=float, default=2.0, help="for all targets together")
    parser.add_argument("--target", choices=sorted(TARGETS), action="append", help="only this one; may be repeated")
    parser.add_argument("--keep", action="store_true", help="write the minimised corpus back")
    parser.add_argument("--seed", action="store_true", help="start a new corpus; named inputs stay")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    targets = [TARGETS[name] for name in options.target or TARGETS]
    if options.seed:
        for target in targets:
            _seed(target)
        return 0
    broken = [_fuzz(target, options.minutes * 60 / len(targets), keep=options.keep) for target in targets]
    return 1 if any(broken) else 0


def _seed(target: Target) -> None:
    kept = _named(target) if packed_corpus.file_of(target.name).exists() else {}
    fresh = {packed_corpus.digest_name(data): data for data in target.seeds()}
    packed_corpus.write(target.name, fresh | kept)


def _named(target: Target) -> dict[str, bytes]:
    inputs = packed_corpus.read(target.name)
    return {name: data for name, data in inputs.items() if packed_corpus.is_finding(name, data)}


def _fuzz(target: Target, seconds: float, *, keep: bool) -> bool:
    """Whether something broke."""
    with tempfile.TemporaryDirectory(prefix=f"fuzz-{target.name}-") as directory:
        result = fuzz(target, seconds, packed_corpus.read(target.name), Path(directory))
        print(result.summary)
        if keep:
            small = minimised(target.run, result.corpus)
            packed_corpus.write(target.name, small | _named(target))
            print(f"{target.name}: {len(result.corpus)} inputs minimised to {len(small)}")
        if result.finding is None:
            return False
        print(result.last_words)
        print(f"keep this in {packed_corpus.file_of(target.name).name} under a name that says what it breaks:")
        print(f"… {base64.b64encode(result.finding).decode()}")
        return True


if __name__ == "__main__":
    sys.exit(main())
