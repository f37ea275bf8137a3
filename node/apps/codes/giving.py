"""What a giver answers to those who try its code (section 21): pure, message to message.

Few tries fail, one taker is let in, and who has not shown the code learns nothing of it.
"""

from typing import Final

from parley._crypto.errors import KeyExchangeError
from parley._crypto.identity import NodeId
from parley._crypto.spake2 import SHARE_SIZE, Confirmations, Spake2
from parley._node.apps.codes.code import SECONDS, SLOT_SIZE, Code
from parley._node.apps.codes.errors import CodeReset, ExchangeRefused
from parley._node.protocol.rate_limit import Rate
from parley._node.trust.rations import Rations

FAILED_TRIES: Final = 3  # after which a code is given up
AT_A_TIME: Final = 4  # exchanges
OF_AN_ADDRESS: Final = Rate(8, 8.0)  # exchanges that begin

OPENING_SIZE: Final = SLOT_SIZE + SHARE_SIZE


class Giving:
    """The tries of one code. `now` is seconds of a clock that never goes back; `who` stands for a
    connection."""

    def __init__(self, code: Code, node_id: NodeId, now: float) -> None:
        self.code = code
        self.failed = 0
        self.taken = False
        self._node_id = node_id
        self._until = now + SECONDS
        self.expected: dict[object, Confirmations] = {}
        self._rations = Rations(OF_AN_ADDRESS)

    @property
    def given_up(self) -> bool:
        """Whether too many tries have failed."""
        return self.failed >= FAILED_TRIES

    def begin(
        self,
        who: object,
        address: str,
        now: float,
        opening: bytes,
        taker: NodeId,
        context: bytes,
        *,
        private: bytes | None = None,
    ) -> bytes:
        """Message 2, to message 1. `context` is that of the session; `private` is for vectors.

        Raises:
            ExchangeRefused: why it has none.
        """
        self._require_good(now)
        if int.from_bytes(opening[:SLOT_SIZE]) != self.code.slot:
            raise ExchangeRefused(CodeReset.GONE, "there is no such code here")
        busy = who in self.expected or len(self.expected) >= AT_A_TIME
        if busy or not self._rations.take(address, now):
            raise ExchangeRefused(CodeReset.BUSY, "too many tries at a time")
        ours = Spake2(self.code.password, first=False, private=private)
        try:
            expected = ours.finish(opening[SLOT_SIZE:], taker, self._node_id, context)
        except KeyExchangeError as error:
            raise ExchangeRefused(CodeReset.MALFORMED, "that is not a share") from error
        self.expected[who] = expected
        return ours.share

    def confirm(self, who: object, now: float, confirmation: bytes) -> bytes:
        """Message 4, to message 3: from now on the code is taken.

        Raises:
            ExchangeRefused: why it is not; a wrong confirmation has used up a try.
        """
        expected = self.expected.pop(who)
        self._require_good(now)
        if not expected.check(confirmation):
            self.failed += 1
            raise ExchangeRefused(CodeReset.WRONG, "that is not the code")
        self.taken = True
        return expected.ours

    def leave(self, who: object) -> None:
        """The exchange on this connection is over, however."""
        self.expected.pop(who, None)

    def _require_good(self, now: float) -> None:
        if self.taken or self.given_up or now >= self._until:
            raise ExchangeRefused(CodeReset.GONE, "the code is not good any more")
