"""A home of Spark in which queries are ready sooner.

Spark gives its Python processes the modules of `pyspark` as a zip, and Python compiles what it imports from a zip anew
each time. A query starts five such processes, one after the other. In a home without that zip they import the package
that is installed, which is compiled once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyspark

_NEEDED: Final = ("bin", "jars")


def make_spark_home(directory: Path) -> None:
    """To be named in SPARK_HOME."""
    package = Path(pyspark.__file__).parent
    directory.mkdir(parents=True)
    for name in _NEEDED:
        (directory / name).symlink_to(package / name)
