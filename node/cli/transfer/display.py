"""Show the progress of transfers: bars at a terminal, or occasional JSON lines.

A printing error never fails a transfer: after the reader of the output has closed, printing stops.
Names come from unknown peers and are shown on one line.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from parley._node.apps.transfer.progress import Transfer, Watcher
from parley._node.apps.transfer.protocol import RefusalCode
from parley._node.cli.output import Output, discard_stdout
from parley._node.errors import CallRefused, ParleyError
from parley._node.logs import one_line

PROGRESS_INTERVAL = 1.0  # seconds between JSON lines of one file


class Display(Watcher):
    """Shows transfers on `out`; `arrow` is printed between a file and the peer."""

    def __init__(self, out: Output, arrow: str) -> None:
        self._out = out
        self._arrow = arrow
        self._started: dict[Transfer, float] = {}
        self._told: dict[Transfer, float] = {}
        self._bars: dict[Transfer, TaskID] = {}
        self._progress = out.bar(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )

    @contextmanager
    def shown(self) -> Iterator[None]:
        with self._progress:
            yield

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the progress bars while a user is asked."""
        self._progress.stop()
        try:
            yield
        finally:
            self._progress.start()

    def began(self, transfer: Transfer) -> None:
        now = perf_counter()
        self._started[transfer] = self._told[transfer] = now
        offer = transfer.offer
        self._bars[transfer] = self._progress.add_task(
            escape(one_line(offer.name)), total=offer.size, completed=transfer.offset
        )
        self._event("begin", **_described(transfer), offset=transfer.offset)
        if 0 < transfer.offset < offer.size:
            self._say(f"{offer.name}: resuming at {transfer.offset:,} of {offer.size:,} bytes")

    def advanced(self, transfer: Transfer) -> None:
        if transfer in self._bars:
            self._progress.update(self._bars[transfer], completed=transfer.at)
        now = perf_counter()
        if now - self._told.get(transfer, now) >= PROGRESS_INTERVAL:
            self._told[transfer] = now
            size = transfer.offer.size
            self._event("progress", name=transfer.offer.name, at=transfer.at, size=size)

    def stopped(self, transfer: Transfer, error: Exception | None) -> None:
        self._forget(transfer)

    def finished(self, transfer: Transfer, *, new: bool) -> None:
        seconds = self._forget(transfer)
        sent = transfer.offer.size - transfer.offset
        self._event(
            "file",
            **_described(transfer),
            offset=transfer.offset,
            new=new,
            match=True,
            seconds=seconds,
        )
        offer = transfer.offer
        rate = f", {sent / seconds / 1e6:,.1f} MB/s" if seconds and sent else ""
        note = rate if new else ", already complete"
        peer = self._out.petnames.beside(transfer.peer)
        self._say(f"{offer.name} {self._arrow} {peer}: {offer.size:,} bytes{note}")
        self._say(f"sha256 {offer.sha256.hex()} on both sides")

    def refused(self, name: str, peer: str, error: ParleyError) -> None:
        code = getattr(error, "code", RefusalCode.MALFORMED)
        text = str(error.data) if isinstance(error, CallRefused) else str(error)
        self._event("refused", name=name, peer=peer, code=int(code), kind="result", text=text)
        whom = self._out.petnames.beside(peer)
        self._say(f"{name or 'a file'} {self._arrow} {whom}: rejected: {text}")

    def retrying(self, name: str, error: Exception, number: int, pause: float) -> None:
        self._event("retry", name=name, number=number, seconds=pause, text=str(error))
        self._say(f"{name}: {error}; retrying in {pause} s")

    async def report(self, text: str, kind: str, /, **fields: Any) -> None:
        self._event(kind, **fields)
        self._say(text)

    def _forget(self, transfer: Transfer) -> float:
        """Remove a transfer and return its duration."""
        bar = self._bars.pop(transfer, None)
        if bar is not None:
            self._progress.remove_task(bar)
        self._told.pop(transfer, None)
        now = perf_counter()
        return now - self._started.pop(transfer, now)

    def _event(self, kind: str, /, **fields: Any) -> None:
        self._quietly(lambda: self._out.event(kind, **fields))

    def _say(self, text: str) -> None:
        shown = one_line(text)
        self._quietly(lambda: self._out.console.print(shown, markup=False))

    def _quietly(self, show: Callable[[], None]) -> None:
        try:
            show()
        except OSError:
            discard_stdout()  # the reader of the output has closed; continue the transfer


def _described(transfer: Transfer) -> dict[str, Any]:
    offer = transfer.offer
    return {
        "name": offer.name,
        "size": offer.size,
        "sha256": offer.sha256.hex(),
        "peer": transfer.peer,
    }
