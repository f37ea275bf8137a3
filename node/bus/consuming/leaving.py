"""The end of one consumer, of a loop's or of a handler's workers.

One rule: it takes `LEAVE_TIMEOUT` seconds at most, nobody's cancellation cuts it short, and when
it is over nothing of the consumer runs. Knows not why it ends.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import anyio

from node.bus.consuming.holding import Holding
from node.bus.errors import BusClosedError, BusError, BusUnavailableError
from node.bus.event import BusEvent

# Seconds for the store to hear what became of the last events.
LEAVE_TIMEOUT: Final = 5.0


async def leave(
    holding: Holding, error: BusClosedError, failed: Sequence[tuple[BusEvent, str]] = ()
) -> None:
    """Give back what was not begun, refuse what `failed` (with its reason, to come again at once),
    record what is done. Whoever waits for more is told `error`.

    Raises:
        BusError: the store could not be told all of it; that comes again once it was idle for long.
    """
    outcomes = holding.outcomes
    steps: list[Callable[[], Awaitable[None]]] = [partial(holding.stop, error)]
    steps += [partial(outcomes.fail, event, 0.0, reason) for event, reason in failed]
    steps.append(outcomes.recorded)
    errors: list[BusError] = []
    try:
        with anyio.move_on_after(LEAVE_TIMEOUT, shield=True) as scope:
            for step in steps:
                try:
                    await step()
                except BusError as met:
                    errors.append(met)
    finally:
        outcomes.close(error)
        with anyio.CancelScope(shield=True):
            await holding.rest()
    if errors:
        raise errors[0]
    if scope.cancelled_caught:
        text = f"the store did not hear in {LEAVE_TIMEOUT:g} s what became of the last events"
        raise BusUnavailableError(text)


def describe(error: BaseException) -> str:
    """What a history says of an exception."""
    if isinstance(error, anyio.get_cancelled_exc_class()):
        return "cancelled"
    text, name = str(error), type(error).__name__
    return f"{name}: {text}" if text else name
