"""What hands out events, and is not cut short by who asked being cancelled.

One rule: what was handed out to nobody is given back before the cancellation goes on, unless that
takes long; then the group has it again once it was idle. Knows no Redis.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import anyio
from coredis.exceptions import RedisError

from node.bus.errors import BusError
from node.transport.loop import Loop
from node.transport.waiting import Changes

# Seconds that a cancellation waits for what is given back.
CANCEL_PATIENCE: Final = 2.0


class _Errand:
    """A question in a task of its own, and what came of it."""

    __slots__ = ("answer", "changes", "error", "over")

    def __init__(self, loop: Loop) -> None:
        self.changes = Changes(loop.waiter)
        self.over = False
        self.answer: Any = None
        self.error: Exception | None = None

    async def run(self, ask: Callable[[], Awaitable[Any]]) -> None:
        """Ask."""
        try:
            self.answer = await ask()
        except Exception as error:
            self.error = error
        finally:
            self.over = True
            self.changes.notify()

    async def wait(self) -> None:
        """Until there is an answer, or an error."""
        await self.changes.until(lambda: self.over)


async def handed_out(
    loop: Loop,
    ask: Callable[[], Awaitable[Any]],
    give_back: Callable[[Any], Awaitable[object]],
) -> Any:
    """What `ask` answers; if the caller is cancelled meanwhile, `give_back` gets it. Raises as
    `ask`."""
    errand = _Errand(loop)
    loop.spawn(errand.run, ask)
    try:
        await errand.wait()
    except BaseException:
        with (
            anyio.move_on_after(CANCEL_PATIENCE, shield=True),
            suppress(BusError, RedisError),
        ):
            await errand.wait()
            if errand.error is None:
                await give_back(errand.answer)
        raise
    if errand.error is not None:
        raise errand.error
    return errand.answer
