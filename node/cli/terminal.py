"""Output with rich: a console, tables, progress bars and stages.

Separate from `output` because rich is slow to import and short commands don't need it.
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
    """A console for people, silent with JSON."""

    def __init__(self, as_json: bool) -> None:
        # Without emoji codes, because the address [2001:db8:a:b::1] contains one.
        super().__init__(
            stderr=as_json, quiet=as_json, highlight=False, soft_wrap=True, emoji=False
        )

    def render_str(self, text: str, **options: Any) -> Text:
        """Render a string, which may be remote text, with escaped control characters."""
        return super().render_str(visible(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render any other object with escaped control characters, such as the columns of a bar."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else visible(segment.text)
            yield segment if text == segment.text else segment._replace(text=text)

    def on_broken_pipe(self) -> None:
        # Rich would raise SystemExit, which skips cleanup.
        raise BrokenPipeError

    def table(self, table: Table) -> None:
        """Print a table at a terminal. Otherwise print a line with # and the title, then unwrapped
        lines with tab-separated cells.
        """
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
        """Return a progress bar for a terminal. With `kept`, its final state is also printed
        elsewhere.
        """
        return Progress(
            *columns,
            console=self,
            transient=not kept,
            disable=self.quiet or not (kept or self.is_terminal),
            redirect_stderr=sys.stderr.isatty(),
        )

    def _line(self, text: str) -> None:
        if not self.quiet:
            print(text, file=self.file, flush=True)  # rich would replace tabs by spaces

    def _plain(self, cell: RenderableType) -> str:
        text = self.render_str(cell).plain if isinstance(cell, str) else str(cell)
        return one_line(" ".join(text.split()))


def table_of(title: str, *head: str) -> Table:
    """Return a table whose cells are wrapped and never truncated."""
    table = Table(title=f"{title} (times are UTC)", title_justify="left", box=box.SIMPLE_HEAD)
    for name in head:
        table.add_column(name, overflow="fold")
    return table


def table_of_nodes(title: str, since: str, rows: Iterable[tuple[str, str, Iterable[str]]]) -> Table:
    """Return a table of node IDs, dates and names. An ID fits into 80 columns."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("node id", no_wrap=True)
    table.add_column(since, no_wrap=True)
    table.add_column("names", overflow="fold")
    for node_id, when, names in rows:
        table.add_row(node_id, when[:10], escape(",\n".join(names)) or "-")
    return table


class Stages:
    """The stages of a command; a call begins the next one."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._current: TaskID | None = None

    def __call__(self, text: str) -> None:
        self._end()
        self._current = self._progress.add_task(text, total=1)

    def _end(self) -> None:
        if self._current is not None:
            self._progress.update(self._current, completed=1)


@contextmanager
def show_stage(out: Output, text: str) -> Iterator[None]:
    """Show one stage while the block runs."""
    with show_stages(out) as stage:
        stage(text)
        yield


@contextmanager
def show_stages(out: Output) -> Iterator[Stages]:
    """Show stages while the block runs."""
    columns = SpinnerColumn(finished_text="·"), TextColumn("{task.description}", markup=False)
    with out.bar(*columns, TimeElapsedColumn()) as progress:
        yield Stages(progress)
