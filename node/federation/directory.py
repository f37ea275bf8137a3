"""What a server knows of its federation, and says of itself (section 19): cards, links, paths.

Without I/O: it is told of links and of what comes on their streams, and asked what to send there.
Two times come in: `now`, seconds of a clock that never goes back, and `now_ms`, the time of day in
milliseconds since 1970, by which cards are made and expire.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from parley._crypto.errors import SignatureError
from parley._crypto.identity import NODE_ID_SIZE, Identity, NodeId
from parley._lbm.errors import LbmDecodeError
from parley._lbm.fields import MAX_UINT
from parley._node.errors import ConfigError
from parley._node.federation.card_exchange import CardEvent, CardExchange
from parley._node.federation.cards import Card, CardRefusal, Cards, read_card, sign_card
from parley._node.federation.dials import AccountLookup, Attempts, Dials, NoAccounts
from parley._node.federation.limits import CARD_INTERVAL, CARD_RENEWED, LINK_REMEMBERED, MOST_LINKS
from parley._node.federation.paths import Path, PathFinder
from parley._node.protocol.errors import RemoteProtocolError, violation

_CARD_RENEWED_MS: Final = int(CARD_RENEWED * 1000)
_OF_CLOCK: Final = (CardRefusal.MADE_AHEAD, CardRefusal.EXPIRED)


class Directory:
    """A server of a federation.

    `members` are the servers whose cards are taken, those with a configured link among them;
    `carry` those whose tunnels go on through here. `exports` and `addresses` stand in our card for
    people to see. `read` reads a card: a simulation of many servers may read each once for all.
    Our first card waits for `settle` seconds after the first link.

    `cards` are those of all servers, ours among them; `dials` judges what comes from neighbours.

    Raises:
        ConfigError: more than 1,024 servers, ours among them, or too much for a card of 8 KiB.
    """

    def __init__(
        self,
        identity: Identity,
        members: Iterable[NodeId],
        *,
        carry: Iterable[NodeId] = (),
        exports: Iterable[str] = (),
        addresses: Iterable[str] = (),
        accounts: AccountLookup | None = None,
        read: Callable[[bytes], Card] = read_card,
        settle: float = 0.0,
    ) -> None:
        self.node_id = identity.node_id
        self.members = frozenset(members) - {self.node_id}
        self.carry = frozenset(carry)
        self.cards = Cards({*self.members, self.node_id})
        self._identity = identity
        self._exports = tuple(exports)
        self._addresses = tuple(addresses)
        self._read = read
        self._links: dict[NodeId, None] = {}
        self._parted: dict[NodeId, float] = {}  # when, the latest last
        self._exchanges: dict[NodeId, CardExchange] = {}
        self._finder = PathFinder(self.node_id, self.cards, self._links.keys())
        self.dials = Dials(
            self.node_id, self.members, self._links.keys(), self.carry, accounts or NoAccounts()
        )
        self._card: Card | None = None  # our own
        self._said: dict[NodeId, bool] = {}  # the links in it
        self._outdone = 0  # the highest number of a card of ours that others have
        self._made_at = float("-inf")
        self._settle = settle
        self._first_due: float | None = None
        self._stale = False  # our card is to be made anew, for another reason than its links
        self._deadline: float | None = None
        self._wall = 0.0  # `now_ms` less `now`, in ms
        self._check_room()

    def __repr__(self) -> str:
        return f"<Directory of {self.node_id.short}: {len(self._links)} links, {self.cards!r}>"

    # Members.

    def change_members(
        self, members: Iterable[NodeId], carry: Iterable[NodeId], now: float, now_ms: int
    ) -> None:
        """Have these members from now on, and carry for these: links with others are closed, their
        cards forgotten, and all exchanges over: their streams are to be opened anew.

        Raises:
            ConfigError: more than 1,024 servers, ours among them; nothing has changed.
        """
        members = frozenset(members) - {self.node_id}
        self.cards.change_members({*members, self.node_id})
        self.members, self.carry = members, frozenset(carry)
        self.dials.change(self.members, self.carry)
        for known in (self._links, self._parted):
            for gone in known.keys() - members:
                known.pop(gone)
        self._exchanges.clear()
        self._finder.forget()
        self.handle_deadline(now, now_ms)

    # Links.

    @property
    def links(self) -> Sequence[NodeId]:
        """The servers that there is an open link with."""
        return tuple(self._links)

    def link_up(self, neighbour: NodeId, now: float, now_ms: int) -> bool:
        """A link to a member is open. False, and nothing has happened, if it is not a member or
        64 others are open."""
        if neighbour not in self.members:
            return False
        if neighbour not in self._links:
            if len(self._links) >= MOST_LINKS:
                return False
            self._links[neighbour] = None
            self._parted.pop(neighbour, None)
            self._finder.forget()
        self.handle_deadline(now, now_ms)
        return True

    def link_down(self, neighbour: NodeId, now: float, now_ms: int) -> None:
        """It is closed, and with it what was exchanged there."""
        if neighbour in self._links:
            del self._links[neighbour]
            self._parted[neighbour] = now
            self._finder.forget()
        self._exchanges.pop(neighbour, None)
        self.handle_deadline(now, now_ms)

    # Cards.

    def announce(self, addresses: Iterable[str], now: float, now_ms: int) -> None:
        """Say other addresses from now on. Raises ConfigError if they are too much for a card."""
        before, self._addresses = self._addresses, tuple(addresses)
        try:
            self._check_room()
        except ConfigError:
            self._addresses = before
            raise
        self._stale = self._stale or before != self._addresses
        self.handle_deadline(now, now_ms)

    def begin_exchange(self, neighbour: NodeId) -> None:
        """A stream `federation` was opened on the link, in place of any before it."""
        if neighbour in self._links:
            self._exchanges[neighbour] = CardExchange(self.cards)

    def end_exchange(self, neighbour: NodeId) -> None:
        """That stream is over."""
        self._exchanges.pop(neighbour, None)

    def ready(self) -> list[NodeId]:
        """The neighbours to which something is to be sent. Nothing is sent before our own card is
        made, since Have includes it."""
        if self._card is None:
            return []
        return [one for one, exchange in self._exchanges.items() if exchange.wants_to_send]

    def next_event(self, neighbour: NodeId) -> CardEvent | None:
        """What is to be sent to a neighbour now, at most 64 KiB; ask when its stream has room.

        What is not asked for waits, and the newest card of each server takes the place of others.
        """
        exchange = self._exchanges.get(neighbour)
        return None if exchange is None or self._card is None else exchange.next_event()

    def receive(
        self, neighbour: NodeId, subcategory: int, payload: bytes, now: float, now_ms: int
    ) -> list[NodeId]:
        """Take an event of category 8 from the stream of a neighbour.

        Returns the members whose cards were refused for their clock: `cards.clocks` says how far
        they are off.

        Raises:
            RemoteProtocolError: they broke a rule, or passed on a forged card. The exchange is
                over, and the stream is to be reset with the error's code.
        """
        exchange = self._exchanges.get(neighbour)
        if exchange is None:  # it has ended, and this was under way
            return []
        try:
            unpunctual = [
                origin
                for envelope in exchange.receive(subcategory, payload)
                if (origin := self._take(exchange, envelope, now, now_ms)) is not None
            ]
        except RemoteProtocolError:
            del self._exchanges[neighbour]
            raise
        self.handle_deadline(now, now_ms)
        return unpunctual

    def _take(
        self, exchange: CardExchange, encoded: bytes, now: float, now_ms: int
    ) -> NodeId | None:
        """Take a card that came; its origin is returned if its clock is wrong."""
        try:
            card = self._read(encoded)
        except LbmDecodeError:
            self.cards.refused[CardRefusal.MALFORMED] += 1
            return None
        exchange.came(card)
        if card.origin == self.node_id:
            self._hear_own(card)
            return None
        refusal = self.cards.take(card, now, now_ms)
        if refusal is None:
            self._spread(card)
        elif refusal is CardRefusal.FORGED:
            which = f"card {card.number} of {card.origin.short}"
            raise violation(f"{which} has a wrong signature: honest servers verify first")
        return card.origin if refusal in _OF_CLOCK else None

    def _hear_own(self, card: Card) -> None:
        """Others have a card of ours from before we were restarted: ours are to go above it."""
        if self._card is not None and card.number <= self._card.number:
            return
        try:
            card.envelope.verify(None if self._card is None else self._card.envelope)
        except SignatureError:
            self.cards.refused[CardRefusal.FORGED] += 1
            raise violation(f"a forged card of ours, with number {card.number}") from None
        self._outdone = max(self._outdone, card.number)

    def _spread(self, card: Card) -> None:
        for exchange in self._exchanges.values():
            exchange.news(card)

    # Paths.

    def path(self, to: Sequence[NodeId]) -> Path | None:
        """The path to another server, or to [home, node]; None if the cards tell of none."""
        return self._finder.path(to)

    def attempts(
        self, to: Sequence[NodeId], timeout: float, dialler: NodeId | None = None
    ) -> Attempts:
        """The tries to reach a server, or [home, node], in `timeout` seconds in all, for the
        account `dialler` or for this server itself."""
        return Attempts(self._finder, to, timeout, dialler)

    def leads_to_account(self, path: Path) -> bool:
        """Whether a path ends in an account, as far as is known: no card shows its last step."""
        card = self.cards.get(path[-2])
        return card is None or path[-1] not in card.links

    def leads_around(self, to: Sequence[NodeId], now: float) -> bool:
        """Whether the best path has something that failed lately, and another one goes around."""
        return self._finder.path_around(to, now) not in (None, self._finder.path(to))

    # Time.

    def next_deadline(self) -> float | None:
        """When `handle_deadline` is to be called again, by the clock of `now`."""
        deadlines = []
        if self._deadline is not None:
            deadlines.append(self._deadline)
        expiry = self.cards.next_expiry()
        if expiry is not None:
            deadlines.append((expiry - self._wall) / 1000)
        release = self.cards.next_release()
        if release is not None:
            deadlines.append(release)
        if self._parted:
            deadlines.append(next(iter(self._parted.values())) + LINK_REMEMBERED)
        return min(deadlines, default=None)

    def handle_deadline(self, now: float, now_ms: int) -> None:
        """Make our card anew if it is to be, and forget what has expired; never too early."""
        self._wall = now_ms - now * 1000
        while self._parted:
            neighbour = next(iter(self._parted))
            if self._parted[neighbour] + LINK_REMEMBERED > now:
                break
            del self._parted[neighbour]
        self._renew(now, now_ms)
        self.cards.expire(now_ms)
        for card in self.cards.release(now, now_ms):
            self._spread(card)

    def _renew(self, now: float, now_ms: int) -> None:
        links = self._listed()
        card = self._card
        if card is None:
            if not links:
                return
            # The links that come up together, as servers start, stand in one card.
            if self._first_due is None:
                self._first_due = now + self._settle
            due = self._first_due
        else:
            # A clock that was set back has made a card that others think is ahead.
            made = card.made_ms
            renewal = made + _CARD_RENEWED_MS if made <= now_ms else now_ms
            changed = self._stale or links != self._said or card.number < self._outdone
            due = now if changed else now + (renewal - now_ms) / 1000
        self._deadline = max(due, self._made_at + CARD_INTERVAL)
        if self._deadline > now:
            return
        number = max(now_ms, self._outdone + 1, card.number + 1 if card else 1)
        made_card = self._read(self._sign(min(number, MAX_UINT), now_ms, links))
        self._card, self._said, self._stale, self._made_at = made_card, links, False, now
        self._deadline = now + CARD_RENEWED
        self.cards.put(made_card)
        self._spread(made_card)

    def _listed(self) -> dict[NodeId, bool]:
        """The links that are open, and as many as there is room for of those that were."""
        listed = [*self._links, *reversed(self._parted)][:MOST_LINKS]
        return {neighbour: neighbour in self.carry for neighbour in listed}

    def _sign(self, number: int, made_ms: int, links: Mapping[NodeId, bool]) -> bytes:
        return sign_card(
            self._identity,
            number=number,
            made_ms=made_ms,
            links=links,
            exports=self._exports,
            addresses=self._addresses,
        )

    def _check_room(self) -> None:
        """Raise ConfigError unless our card has room for all the links that there may be."""
        self._sign(
            MAX_UINT,
            0,
            {NodeId(bytes((place,)) * NODE_ID_SIZE): True for place in range(MOST_LINKS)},
        )
