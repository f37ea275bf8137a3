"""What a command that takes its time is at: a line at a terminal for each stage, with its time.

Nothing is shown elsewhere, nor with JSON. Log lines stand above it, as above every bar.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from parley._node.cli.output import Output


class Stages:
    """The stages of a command, each begun by a call with what is done in it."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._current: TaskID | None = None

    def __call__(self, text: str) -> None:
        """The stage before is over; what is done now is `text`."""
        self._end()
        self._current = self._progress.add_task(text, total=1)

    def _end(self) -> None:
        if self._current is not None:
            self._progress.update(self._current, completed=1)


@contextmanager
def during(out: Output, text: str) -> Iterator[None]:
    """While it lasts, what is done is `text`: the only stage, or one that comes again and again."""
    with staged(out) as stage:
        stage(text)
        yield


@contextmanager
def staged(out: Output) -> Iterator[Stages]:
    """While it lasts the stages are shown; they go when it ends."""
    columns = SpinnerColumn(finished_text="·"), TextColumn("{task.description}", markup=False)
    with out.bar(*columns, TimeElapsedColumn()) as progress:
        yield Stages(progress)
