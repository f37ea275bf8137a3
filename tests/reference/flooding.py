"""Have and Cards on one stream `federation` (section 19), which also carries Statements.

Written from the document. Methods return the node IDs of the cards to send, in any order.
"""

from typing import Any, Final

from tests.reference import cbor
from tests.reference.envelopes import CardTable, Dropped, is_id, read_card
from tests.reference.sharing import Sharing
from tests.reference.wire import CELLS, TYPES, Event, Violation, own_cells

MOST_SERVERS: Final = 1_024
MOST_ENVELOPES: Final = 1_024
MOST_BYTES: Final = 65_536
LEAST_PAYLOAD: Final = 131_072


class Flooding:
    """One end of the stream; `offers` are number and envelope of each card that this end has, its
    own included.

    `dropped` lists why cards were not taken. `sharing` has the key statements of the session;
    `shared` are the slots of those that are sent.
    """

    def __init__(
        self,
        table: CardTable,
        offers: dict[bytes, tuple[int, bytes]],
        sharing: Sharing | None = None,
    ) -> None:
        self.table, self.offers = table, offers
        self.sharing = sharing or Sharing()
        self.sharing.begin_stream()
        self.shared: set[bytes] = set()
        self.dropped: list[str] = []
        self._highest: dict[bytes, int] = {}
        self._heard = False

    def have(self) -> list[list[Any]]:
        """The content of Have, by ids."""
        return [[origin, number] for origin, (number, _) in sorted(self.offers.items())]

    def receive(self, subcategory: int, payload: bytes, now_ms: int) -> set[bytes]:
        """The origins whose cards are sent for it; raises Violation where the stream is reset."""
        if subcategory == TYPES["Have"][1]:
            return self._take_have(payload)
        if subcategory == TYPES["Cards"][1]:
            self._take_cards(payload, now_ms)
        if subcategory == TYPES["Statements"][1]:
            if not self._heard:
                raise Violation("protocol-error", "Statements before Have")
            self.shared |= self.sharing.receive(payload)
        return set()

    def news(self, origin: bytes, number: int, envelope: bytes) -> set[bytes]:
        """Process a card from another link, or the node's own renewed card."""
        self.offers[origin] = number, envelope
        return self._sent({origin}) if self._heard else set()

    def _take_have(self, payload: bytes) -> set[bytes]:
        entries = _cell(payload, "have")
        if self._heard:
            raise Violation("protocol-error", "a second Have")
        if len(entries) > MOST_SERVERS or not all(_is_entry(one) for one in entries):
            raise Violation("protocol-error", "no array of at most 1,024 ids and numbers")
        self.shared |= self.sharing.receive_have(payload)
        self._heard = True
        for origin, number in entries:
            self._saw(origin, number)
        return self._sent(set(self.offers))

    def _take_cards(self, payload: bytes, now_ms: int) -> None:
        envelopes = _cell(payload, "envelopes")
        if not self._heard:
            raise Violation("protocol-error", "Cards before Have")
        if len(envelopes) > MOST_ENVELOPES or not all(isinstance(e, bytes) for e in envelopes):
            raise Violation("protocol-error", "no array of at most 1,024 byte strings")
        if sum(map(len, envelopes)) > MOST_BYTES:
            raise Violation("protocol-error", "more than 65,536 bytes of them")
        for envelope in envelopes:
            try:
                self._take_card(envelope, now_ms)
            except Dropped as dropped:
                if dropped.reason == "signature":
                    raise Violation("protocol-error", dropped.why) from dropped
                self.dropped.append(dropped.reason)

    def _take_card(self, envelope: bytes, now_ms: int) -> None:
        card, _ = read_card(envelope)
        self._saw(card.origin, card.number)
        self.table.take(envelope, now_ms)
        if card.origin != self.table.own:
            self.offers[card.origin] = card.number, envelope

    def _saw(self, origin: bytes, number: int) -> None:
        if origin in self.table.members or origin == self.table.own:
            self._highest[origin] = max(number, self._highest.get(origin, -1))

    def _sent(self, origins: set[bytes]) -> set[bytes]:
        above = {one for one in origins if self.offers[one][0] > self._highest.get(one, -1)}
        for origin in above:
            self._highest[origin] = self.offers[origin][0]
        return above


def _cell(payload: bytes, name: str) -> list[Any]:
    try:
        return list(own_cells(payload, name)[CELLS[name]])
    except (cbor.LbmError, KeyError) as error:
        raise Violation("protocol-error", f"malformed: {error}") from error


def _is_entry(one: Any) -> bool:
    return (
        isinstance(one, list)
        and len(one) == 2
        and is_id(one[0])
        and isinstance(one[1], int)
        and not isinstance(one[1], bool)
        and one[1] >= 0
    )


def judge_link(*, member: bool, opener_dialled: bool, m: int, payload: int, first: bool) -> str:
    """Return the outcome when a stream `federation` is opened on a session: a `link`, or the kind
    of refusal.

    `m` is the agreed `resume ms`, and `payload` the agreed `max_payload`; `first` means that the
    session has no other open stream `federation`.
    """
    if not member or not opener_dialled:
        return "not-authorised"
    if payload < LEAST_PAYLOAD:
        return "closed"
    if m > 0 or not first:
        return "refused"
    return "link"


def take_other(event: Event) -> str:
    """What happens with an event on the stream once both sides have sent Have: Cards and Statements
    are `taken` elsewhere; raises Violation where the stream is reset."""
    kind = event.category, event.subcategory
    if kind == TYPES["Have"]:
        raise Violation("protocol-error", "a second Have")
    if kind == TYPES["Cards"]:
        _cell(event.payload, "envelopes")
        return "taken"
    if kind == TYPES["Statements"]:
        Sharing().receive(event.payload)
        return "taken"
    return "dropped"
