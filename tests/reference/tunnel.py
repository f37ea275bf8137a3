"""What may come on a stream `tunnel` (section 19), as the server between sees it.

Written from the document.
"""

from typing import Final

from tests.reference.wire import TYPES, Event, Violation

FIRST_WINDOW: Final = 65_536
LARGEST_WINDOW: Final = 262_144
# In the first window, and in a larger one.
FIRST_DATA: Final = 16_384
LONGEST_DATA: Final = 66_560
DIAL_ID: Final = 1


class TunnelHop:
    """One stream `tunnel` on which the other side dialled, or, if `opened`, this side did and was
    answered with code 0. `window` is the one that the server now grants on the stream."""

    def __init__(self, *, opened: bool = False, window: int = FIRST_WINDOW) -> None:
        self._dialled = self._joined = opened
        self._longest = FIRST_DATA if window == FIRST_WINDOW else LONGEST_DATA

    def answer(self) -> None:
        """Send the Answer with code 0."""
        self._joined = True

    def receive(self, event: Event) -> str:
        """What happens with an event: `dial`, `passes on` or `gives up`; raises Violation where the
        stream is reset."""
        kind = event.category, event.subcategory
        if self._joined:
            if kind == TYPES["Finish"]:
                return "passes on"
            if kind == TYPES["Data"] and len(event.payload) <= self._longest:
                return "passes on"
            raise Violation("protocol-error", "only Data and Finish pass on joined streams")
        if not self._dialled:
            if kind == TYPES["Dial"] and event.async_id == DIAL_ID:
                self._dialled = True
                return "dial"
            raise Violation("protocol-error", "the first event is one Dial")
        if kind == TYPES["Cancel"]:
            return "gives up"
        raise Violation("protocol-error", "nothing comes between the Dial and its Answer")
