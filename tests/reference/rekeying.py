"""Key updates and rekeys of one connection (section 6).

`RekeyState` receives every KeyUpdate, offer and answer, and returns the events to send. Only this
module changes the directions. No sockets.
"""

from dataclasses import dataclass
from typing import Any

from tests.reference import exchange, schedule
from tests.reference.exchange import Offer
from tests.reference.primitives import CryptoFailure
from tests.reference.sealing import Direction, Opened
from tests.reference.wire import CELLS, Violation, cells_payload


@dataclass
class Pending:
    """A rekey whose KeyUpdates are not both through."""

    keys: schedule.RekeyKeys
    sent: bool = False
    received: bool = False


class RekeyState:
    """`is_initiator` is the role in the connection, not in a rekey."""

    def __init__(
        self, outgoing: Direction, incoming: Direction, rekey: bytes, *, is_initiator: bool
    ) -> None:
        self.outgoing, self.incoming = outgoing, incoming
        self.rekey = rekey
        self.is_initiator = is_initiator
        self.number = 0
        self.offer: Offer | None = None
        self.offer_chain = b""
        self.pending: Pending | None = None
        self.update_due = False  # the next event that comes is the answerer's KeyUpdate

    def make_offer(self) -> bytes:
        """The payload of RekeyOffer; `offered` follows when it has been written."""
        self.offer = Offer.fresh(self.outgoing.suite.kex)
        return cells_payload(share=self.offer.share)

    def offered(self) -> None:
        """The offer is written: the outgoing chain value is `a`."""
        self.offer_chain = self.outgoing.chain

    def receive_offer(self, opened: Opened, cells: dict[int, Any]) -> tuple[bytes, bytes] | None:
        """(payload of RekeyAnswer, shared secret); None where the own offer goes first."""
        if self.pending is not None:
            raise Violation("protocol-error", "an offer before the last rekey is over")
        if self.offer is not None and self.is_initiator:
            return None
        self.offer = None
        try:
            share, secret = exchange.answer(self.outgoing.suite.kex, cells[CELLS["share"]])
        except (CryptoFailure, KeyError) as error:
            raise Violation("protocol-error", "share") from error
        return cells_payload(share=share), secret

    def answered(self, opened: Opened, secret: bytes) -> None:
        """The answer to `opened` is written: the outgoing chain value is `b`."""
        self._derive(secret, opened.chain, self.outgoing.chain)

    def receive_answer(self, opened: Opened, cells: dict[int, Any]) -> None:
        """Completes the own offer."""
        if self.offer is None:
            raise Violation("protocol-error", "an unasked answer")
        try:
            secret = self.offer.complete(cells[CELLS["share"]])
        except (CryptoFailure, KeyError) as error:
            raise Violation("protocol-error", "share") from error
        self.offer = None
        self._derive(secret, self.offer_chain, opened.chain)
        self.update_due = True

    def update_payload(self) -> bytes:
        """The payload of the next KeyUpdate: of the rekey where one is due, else a plain one."""
        epoch = self.outgoing.epoch + 1
        if self.pending is not None and not self.pending.sent:
            return cells_payload(epoch=epoch, rekey=self.number)
        return cells_payload(epoch=epoch)

    def updated(self) -> None:
        """The KeyUpdate is written: the outgoing direction changes."""
        due = self.pending is not None and not self.pending.sent
        if due and self.pending is not None:
            self.pending.sent = True
        self._change(self.outgoing, due, own=True)

    def receive_update(self, cells: dict[int, Any]) -> None:
        """A KeyUpdate came: the incoming direction changes."""
        if cells.get(CELLS["epoch"]) != self.incoming.epoch + 1:
            raise Violation("protocol-error", "epoch")
        rekeyed = CELLS["rekey"] in cells
        if rekeyed:
            if self.pending is None or self.pending.received:
                raise Violation("protocol-error", "a KeyUpdate of no rekey")
            if cells[CELLS["rekey"]] != self.number:
                raise Violation("protocol-error", "rekey number")
            self.pending.received = True
        self._change(self.incoming, rekeyed, own=False)

    def _derive(self, secret: bytes, a: bytes, b: bytes) -> None:
        keys = schedule.rekey_keys(self.outgoing.suite.hash, self.rekey, secret, a, b)
        self.pending = Pending(keys)
        self.rekey = keys.rekey
        self.number += 1

    def _change(self, direction: Direction, rekeyed: bool, *, own: bool) -> None:
        name = direction.suite.hash
        if not rekeyed or self.pending is None:
            direction.replace(schedule.updated(name, direction.secret))
            return
        keys = self.pending.keys
        by_initiator = own == self.is_initiator
        direction.replace(keys.next_initiator if by_initiator else keys.next_responder)
        direction.chain = schedule.chain_rekey(name, direction.chain, keys.rcommit)
        if self.pending.sent and self.pending.received:
            self.pending = None
