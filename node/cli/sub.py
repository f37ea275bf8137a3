"""`parley sub`: print the notes of a topic, also after reconnects."""

import sys
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from parley._node.cli.first_contact import open_node
from parley._node.cli.link import open_link, report_remarks
from parley._node.cli.options import NodeOptions
from parley._node.cli.output import Output, format_value, pluralise
from parley._node.cli.param_types import read_value
from parley._node.cli.run import Uvloop, run
from parley._node.cli.standard_io import PacedOutput
from parley._node.peer.link_subscription import LinkSubscription

# `drained` assumes that no note is left when the reader has waited for this many iterations of the
# event loop. While a note is being printed, it checks again after this many seconds.
_TURNS: Final = 20
_LOOK: Final = 0.02


def sub(
    options: NodeOptions,
    address: str,
    topic: str,
    count: int | None,
    data: str | None,
    data_json: str | None,
    give_up_after: float | None,
) -> None:
    value = read_value(data, data_json, name="--data")

    async def subscribing(options: NodeOptions, out: Output) -> None:
        notes = Notes(out, topic)
        async with (
            open_node(options, out, address) as node,
            open_link(
                *(node, options, out, address, notes.report),
                wanted=lambda: not notes.are_complete,
                give_up_after=give_up_after,
                drained=notes.drained,
            ) as link,
            link.subscribe(topic, value) as subscription,
        ):
            await notes.show(subscription, count)
        out.done(
            notes=notes.shown, lost=notes.lost, reason="count" if notes.shown == count else "end"
        )

    run(options, subscribing, uvloop=Uvloop.IMPOSSIBLE)


class Notes:
    """Prints notes and, with JSON, other events on standard output, never interleaved."""

    def __init__(self, out: Output, topic: str) -> None:
        self.shown = self.lost = 0
        self._out = out
        self._topic = topic
        self._pace = PacedOutput(sys.stdout)
        self.report = report_remarks(out, self._pace)
        self._subscription: LinkSubscription | None = None
        self._is_reading = False

    @property
    def are_complete(self) -> bool:
        """Whether all wanted notes have arrived; some may not be printed yet."""
        return self._subscription is not None and self._subscription.is_over

    async def drained(self) -> None:
        """Wait until all received notes are printed."""
        turns = 0
        while turns < _TURNS:
            if self._is_reading:
                turns += 1
                await checkpoint()
            else:
                turns = 0
                await anyio.sleep(_LOOK)

    async def show(self, subscription: LinkSubscription, count: int | None) -> None:
        self._subscription = subscription
        await self.report("", "subscribed", topic=self._topic, data=subscription.data)

        @subscription.on_session
        async def again() -> None:
            await self._subscribed_again(subscription)

        self._is_reading = True
        async for note in subscription:
            self._is_reading = False
            await self._count_lost(subscription)
            self.shown += 1
            line = self._out.line(format_value(note), "note", number=self.shown, data=note)
            await self._pace.print(line)
            if self.shown == count:
                break
            self._is_reading = True
        await self._count_lost(subscription)

    async def _subscribed_again(self, subscription: LinkSubscription) -> None:
        recovered = None if subscription.position is None else subscription.recovered
        if recovered is None:
            found = "some notes may be missing"
        else:
            found = "no note is missing" if recovered else "some notes may be missing"
        fields = {"topic": self._topic, "data": subscription.data, "recovered": recovered}
        await self.report(f"resubscribed: {found}", "subscribed", **fields)

    async def _count_lost(self, subscription: LinkSubscription) -> None:
        """Report notes that are missing before the last one."""
        lost = subscription.dropped + subscription.gaps
        if lost > self.lost:
            number, self.lost = lost - self.lost, lost
            text = f"{pluralise(number, 'note')} lost: this command reads too slowly"
            await self.report(text, "lost", count=number)
