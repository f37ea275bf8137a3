"""Output with rich: a console, tables, progress bars and stages.

Apart from `output`, because rich is slow to import and short commands don't need it.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.progress import (
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from parley._node.cli.output import Output
from parley._node.logs import one_line, visible


class TextConsole(Console):
    """A console for people; with JSON it is quiet, since standard output is for JSON alone."""

    def __init__(self, as_json: bool) -> None:
        # Without emoji: the address [2001:db8:a:b::1] has none.
        super().__init__(
            stderr=as_json, quiet=as_json, highlight=False, soft_wrap=True, emoji=False
        )

    def render_str(self, text: str, **options: Any) -> Text:
        """Render a string with its control characters escaped: whatever a table, a line or a
        question shows of another node doesn't steer the terminal."""
        return super().render_str(visible(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render anything else in the same way, such as the columns of a bar."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else visible(segment.text)
            yield segment if text == segment.text else segment._replace(text=text)

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError."""
        # Rich would leave by SystemExit, which passes by whatever has to be closed.
        raise BrokenPipeError

    def table(self, table: Table) -> None:
        """Print a table: with lines to a terminal; to what reads it otherwise as tab-separated
        lines, none of them wrapped, below one that begins with # and its title."""
        if self.is_terminal:
            self.print(table)
            return
        if table.title:
            self._line(f"# {self._plain(table.title)}")
        if table.show_header:
            self._line("\t".join(self._plain(column.header) for column in table.columns))
        for row in zip(*(column.cells for column in table.columns), strict=True):
            self._line("\t".join(map(self._plain, row)))

    def bar(self, *columns: ProgressColumn, kept: bool) -> Progress:
        """A bar that moves at a terminal; one that is `kept` shows its end elsewhere too."""
        return Progress(
            *columns,
            console=self,
            transient=not kept,
            disable=self.quiet or not (kept or self.is_terminal),
            redirect_stderr=sys.stderr.isatty(),
        )

    def _line(self, text: str) -> None:
        if not self.quiet:
            print(text, file=self.file, flush=True)  # rich would make blanks of tabs

    def _plain(self, cell: RenderableType) -> str:
        text = self.render_str(cell).plain if isinstance(cell, str) else str(cell)
        return one_line(" ".join(text.split()))


def table_of(title: str, *head: str) -> Table:
    """A table in which nothing is cut off: what is too long goes on in the next line."""
    table = Table(title=f"{title} (times are UTC)", title_justify="left", box=box.SIMPLE_HEAD)
    for name in head:
        table.add_column(name, overflow="fold")
    return table


def table_of_nodes(title: str, since: str, rows: Iterable[tuple[str, str, Iterable[str]]]) -> Table:
    """Nodes of a file: the id, the day since when, and the names. At 80 columns an id is whole."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("node id", no_wrap=True)
    table.add_column(since, no_wrap=True)
    table.add_column("names", overflow="fold")
    for node_id, when, names in rows:
        table.add_row(node_id, when[:10], escape(",\n".join(names)) or "-")
    return table


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
def show_stage(out: Output, text: str) -> Iterator[None]:
    """While it lasts, what is done is `text`: the only stage, or one that comes again and again."""
    with show_stages(out) as stage:
        stage(text)
        yield


@contextmanager
def show_stages(out: Output) -> Iterator[Stages]:
    """While it lasts the stages are shown; they go when it ends."""
    columns = SpinnerColumn(finished_text="·"), TextColumn("{task.description}", markup=False)
    with out.bar(*columns, TimeElapsedColumn()) as progress:
        yield Stages(progress)
