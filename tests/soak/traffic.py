"""The load of one side on one connection: calls, answers with items, events, bytes, notes.

Each worker runs as fast as it can until the load ends, checks every answer, and ends only with the
connection. `handlers` contains the other side's part.
"""

from contextlib import suppress
from functools import partial
from random import Random  # noqa: TID251  # seeded: sizes and who leaves early

import anyio

from parley import Peer, Stream
from parley._node.protocol.errors import LocalError
from tests.soak.ledger import Book, Bytes, Numbers, Sent, content
from tests.soak.phases import Phases
from tests.soak.plan import PATIENCE

CATEGORY = 64
NOTE, ASK, ANSWER = 1, 2, 3
# The topics of each node: readers of the first lose no notes, those of the second are slow.
FEED, TICKER = "feed", "ticker"
TICKER_WINDOW = 16 * 1024
# Seconds between two batches of a slow reader.
SLOW = 0.5
PIECE = 60_000
FILLING = bytes(range(256)) * 256


class Traffic:
    """The data that one side sends and requests on one connection."""

    def __init__(self, peer: Peer, book: Book, phases: Phases, random: Random) -> None:
        self.peer = peer
        self.book = book
        self.phases = phases
        self.random = random
        self.losses: dict[str, list[int]] = {}  # of each topic: reported, missing

    def filling(self) -> bytes:
        """Return a payload that is mostly short, sometimes long."""
        random = self.random
        return FILLING[: random.randrange(65_536 if random.random() < 0.005 else 300)]

    async def calls(self, worker: int) -> None:
        """Call repeatedly; each answer shows that the call ran, in order."""
        flow = f"calls/{worker}"
        sent = self.book.sending(flow)
        while not self.phases.resting:
            number = sent.next()
            question = [worker, number, self.filling()]
            answer = await self.peer.call("count", question, timeout=PATIENCE)
            if answer != [worker, number]:
                self.book.complain(f"{flow}: {number} was answered by {answer!r:.60}")
            sent.acknowledged = number + 1

    async def items(self, worker: int) -> None:
        """Request answers with items repeatedly, and leave some of them early."""
        random = self.random
        while not self.phases.resting:
            count = random.randrange(300)
            leave_at = random.randrange(300) if random.random() < 0.1 else count
            window = random.choice((None, 4_096))
            check = Numbers(partial(self.book.complain_of, f"items/{worker}"))
            async with self.peer.call_stream("items", count, window=window) as answer:
                async for item in answer:
                    check.take(item[0] if isinstance(item, list) else item)
                    if check.expected > leave_at:
                        break
                else:
                    check.end(count)
            self.book.took["items"] += check.expected

    async def events(self, worker: int) -> None:
        """Send events on one stream for the whole connection, and sometimes ask whether all
        arrived.
        """
        flow = f"events/{worker}"
        sent = self.book.sending(flow)
        stream = self.peer.open_stream(flow, answers=[(CATEGORY, ANSWER)])
        async with stream:
            while not self.phases.resting:
                for _ in range(self.random.randrange(100)):
                    await stream.send_event(CATEGORY, NOTE, [sent.next(), self.filling()])
                await self._ask(stream, sent)
            await self.phases.left.wait()
            await stream.send_eof()
            async for event in stream.events():
                self.book.complain(f"{flow}: {event!r} that nobody sent")

    async def _ask(self, stream: Stream, sent: Sent) -> None:
        number = sent.next()
        answer = await stream.request(CATEGORY, ASK, [number], timeout=PATIENCE)
        if answer.data != number + 1:
            self.book.complain(f"{stream.label}: {answer.data!r} came of {number + 1}")
        sent.acknowledged = number + 1

    async def pipes(self, worker: int) -> None:
        """Open streams one after another, with bytes in both directions; the label gives their
        number.
        """
        sent = self.book.sending(f"pipe/{worker}")
        back = self.book.bytes(f"back/{worker}")
        while not self.phases.resting:
            there, here = (self.random.randrange(1, 3_000_000) for _ in range(2))
            first, first_back = sent.count, back.expected
            label = f"pipe/{worker}/{first}/{there}/{first_back}/{here}"
            async with self.peer.open_stream(label) as stream, anyio.create_task_group() as both:
                both.start_soon(send_all, stream, sent, there)
                await take_content(stream, back, first_back + here)
            sent.acknowledged = first + there

    async def notes(self, topic: str) -> None:
        """Subscribe repeatedly; no subscription is left while the other side rests."""
        slow = topic == TICKER
        check = self.book.numbers(f"notes/{topic}", may_miss=slow)
        window = TICKER_WINDOW if slow else None
        while not self.phases.over:
            subscription = self.peer.subscribe(topic, timeout=PATIENCE, window=window)
            async with subscription:
                first = subscription.data
                check.restart(first if isinstance(first, int) else -1)
                enough = check.expected + self.random.randrange(1_000, 200_000)
                async for notes in subscription.batches():
                    self.book.took[f"notes of {topic}"] += len(notes)
                    for note in notes:
                        check.take(note[0] if isinstance(note, list) else note)
                    told = subscription.dropped
                    self.losses[topic] = [told, check.missing]
                    if check.missing > told:
                        self.book.complain(f"{topic}: {check.missing} missing, {told} told")
                    if slow and not self.phases.resting:
                        with anyio.move_on_after(SLOW):
                            await self.phases.rest.wait()
                    if check.expected > enough and not self.phases.resting:
                        break
                else:
                    return  # the publisher has closed it

    async def rekeys(self, _: int) -> None:
        """Rekey on request, immediately, so that both sides' offers cross, and then from time to
        time.

        These rekeys are in addition to those that the settings cause.
        """
        while self.peer.is_open and not self.phases.resting:
            with suppress(LocalError):  # the rate limit is exhausted
                await self.peer.rekey()
            pause = self.random.randrange(10, 40)
            while pause and self.peer.is_open:
                pause = 0 if self.phases.rest.is_set() else pause - 1
                await anyio.sleep(0.1)


async def send_content(stream: Stream, sent: Sent, size: int) -> None:
    """Send `size` bytes of a flow's content."""
    end = sent.count + size
    while sent.count < end:
        piece = content(sent.count, min(PIECE, end - sent.count))
        sent.count += len(piece)
        await stream.send(piece)


async def send_all(stream: Stream, sent: Sent, size: int) -> None:
    """Send `size` bytes of a flow's content, then finish."""
    await send_content(stream, sent, size)
    await stream.send_eof()


async def take_content(stream: Stream, check: Bytes, end: int) -> None:
    """Read a flow's content until the other side has finished, which it should at `end`."""
    async for piece in stream:
        check.take(piece)
    check.end(end)
