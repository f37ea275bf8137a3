"""The directory of one server of a federation: its links, the cards, the paths to other servers
(section 19), and the key statements that it exchanges with them (section 22).

It does no I/O. The caller reports links and received events, and asks for events to send. `now` is
the time in seconds of a monotonic clock. `now_ms` is the wall-clock time in ms since 1970, which
the times in cards refer to.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from parley._crypto.errors import SignatureError
from parley._crypto.identity import NODE_ID_SIZE, Identity, NodeId
from parley._crypto.statements import Statement
from parley._lbm.errors import LbmDecodeError
from parley._lbm.fields import MAX_UINT
from parley._node.errors import ConfigError
from parley._node.federation.card_exchange import CardEvent, CardExchange
from parley._node.federation.cards import Card, CardRefusal, Cards, read_card, sign_card
from parley._node.federation.dials import AccountLookup, Attempts, Dials, NoAccounts
from parley._node.federation.limits import CARD_INTERVAL, CARD_RENEWED, LINK_REMEMBERED, MOST_LINKS
from parley._node.federation.paths import Path, PathFinder
from parley._node.federation.statement_exchange import StatementExchange
from parley._node.protocol.errors import RemoteProtocolError, violation

_CARD_RENEWED_MS: Final = int(CARD_RENEWED * 1000)
_OF_CLOCK: Final = (CardRefusal.MADE_AHEAD, CardRefusal.EXPIRED)


class Directory:
    """The directory of one server of a federation.

    `members` are the servers whose cards are accepted, including those with a configured link.
    Tunnels from servers in `carry` are relayed to other servers. `exports` and `addresses` appear
    in this server's card, for information. Dials to nodes that have ended by `has_ended` are
    refused (section 22). `read` parses a card; a simulation can share the results between servers.
    The first card is made `settle` seconds after the first link.

    `cards` has the cards of all servers, including this one. `dials` decides on Dials from
    neighbours.

    Raises:
        ConfigError: more than 1,024 servers, including this one, or a card would exceed 8 KiB.
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
        has_ended: Callable[[NodeId], bool] = lambda node_id: False,
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
        self._closed_links: dict[NodeId, float] = {}  # the time of closing, in ascending order
        self._exchanges: dict[NodeId, CardExchange] = {}
        # Those that are shared with members, by slot; and the exchanges with members that have, or
        # had, a link.
        self._shared: Mapping[bytes, Statement] = {}
        self._statements: dict[NodeId, StatementExchange] = {}
        self._finder = PathFinder(self.node_id, self.cards, self._links.keys())
        self.dials = Dials(
            self.node_id,
            self.members,
            self._links.keys(),
            self.carry,
            accounts or NoAccounts(),
            has_ended,
        )
        self._card: Card | None = None  # of this server
        self._listed_links: dict[NodeId, bool] = {}  # the links in it
        self._highest_seen = 0  # the highest number of a card of this server that others have
        self._made_at = float("-inf")
        self._settle = settle
        self._first_due: float | None = None
        self._stale = False  # the card must be renewed, although its links are unchanged
        self._deadline: float | None = None
        self._wall = 0.0  # `now_ms` minus `now`, in ms
        self._check_card_size()

    def __repr__(self) -> str:
        return f"<Directory of {self.node_id.short}: {len(self._links)} links, {self.cards!r}>"

    # Members.

    def change_members(
        self, members: Iterable[NodeId], carry: Iterable[NodeId], now: float, now_ms: int
    ) -> bool:
        """Replace the members and the servers in `carry`; return whether there is a new member.

        Links with other servers are closed, and their cards deleted. If there is a new member, all
        exchanges end, and their streams must be reopened.

        Raises:
            ConfigError: more than 1,024 servers, including this one; nothing has changed.
        """
        members = frozenset(members) - {self.node_id}
        self.cards.change_members({*members, self.node_id})
        has_new = not members <= self.members
        self.members, self.carry = members, frozenset(carry)
        self.dials.change(self.members, self.carry)
        for known in (self._links, self._closed_links, self._exchanges, self._statements):
            for gone in known.keys() - members:
                known.pop(gone)
        if has_new:
            self._exchanges.clear()
        self._finder.forget()
        self.handle_deadline(now, now_ms)
        return has_new

    # Links.

    @property
    def links(self) -> Sequence[NodeId]:
        """The servers with an open link."""
        return tuple(self._links)

    def link_up(self, neighbour: NodeId, now: float, now_ms: int) -> bool:
        """Record that a link to a server is open.

        Returns False without effect if it is not a member, or if 64 other links are open.
        """
        if neighbour not in self.members:
            return False
        if neighbour not in self._links:
            if len(self._links) >= MOST_LINKS:
                return False
            self._links[neighbour] = None
            self._closed_links.pop(neighbour, None)
            if neighbour not in self._statements:
                self._statements[neighbour] = StatementExchange(self._shared)
            self._finder.forget()
        self.handle_deadline(now, now_ms)
        return True

    def link_down(self, neighbour: NodeId, now: float, now_ms: int) -> None:
        """Record that a link is closed, which ends the exchange on it."""
        if neighbour in self._links:
            del self._links[neighbour]
            self._closed_links[neighbour] = now
            self._finder.forget()
        self._exchanges.pop(neighbour, None)
        self.handle_deadline(now, now_ms)

    # Cards.

    def announce(self, addresses: Iterable[str], now: float, now_ms: int) -> None:
        """Replace the addresses in this server's card.

        Raises:
            ConfigError: the card would be too large; nothing has changed.
        """
        before, self._addresses = self._addresses, tuple(addresses)
        try:
            self._check_card_size()
        except ConfigError:
            self._addresses = before
            raise
        self._stale = self._stale or before != self._addresses
        self.handle_deadline(now, now_ms)

    def begin_exchange(self, neighbour: NodeId) -> None:
        """Start an exchange: a stream `federation` was opened on the link, replacing any earlier
        one.
        """
        if neighbour in self._links:
            statements = self._statements[neighbour]
            self._exchanges[neighbour] = CardExchange(self.cards, statements)

    def end_exchange(self, neighbour: NodeId) -> None:
        """End the exchange, because its stream has ended."""
        self._exchanges.pop(neighbour, None)

    def ready(self, now: float) -> list[NodeId]:
        """Return the neighbours for which there are events to send.

        Nothing is sent before this server's card is made, because Have includes it.
        """
        if self._card is None:
            return []
        times = {one: exchange.next_at() for one, exchange in self._exchanges.items()}
        return [one for one, time in times.items() if time is not None and time <= now]

    def next_event(self, neighbour: NodeId, now: float) -> CardEvent | None:
        """Return the next event for a neighbour, at most 80 KiB. Call it when its stream has
        capacity.

        Until then, a newer card of a server replaces an older one.
        """
        exchange = self._exchanges.get(neighbour)
        return None if exchange is None or self._card is None else exchange.next_event(now)

    def receive(
        self, neighbour: NodeId, subcategory: int, payload: bytes, now: float, now_ms: int
    ) -> list[NodeId]:
        """Handle an event of category 8 from the stream of a neighbour.

        Returns the members whose cards were refused because of their clocks; `cards.clocks` has the
        offsets.

        Raises:
            RemoteProtocolError: the neighbour violated the protocol or forwarded a forged card. The
                exchange has ended; the caller must reset the stream with the error's code.
        """
        exchange = self._exchanges.get(neighbour)
        if exchange is None:  # the exchange ended while this event was in transit
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

    def share_statements(self, statements: Iterable[Statement], now: float, now_ms: int) -> None:
        """Replace the key statements that are exchanged with members. Predecessors come first,
        because a member may only accept a statement after that of the predecessor.
        """
        self._shared = {one.slot: one for one in statements}
        for exchange in self._statements.values():
            exchange.share(self._shared)
        self.handle_deadline(now, now_ms)

    def receive_statements(
        self, neighbour: NodeId, payload: bytes, now: float
    ) -> list[bytes] | None:
        """Return the statements in an event of subcategory 3 from the stream of a neighbour, at
        most 64. They are not checked. None means that the event is dropped, because there are too
        many.

        Raises:
            RemoteProtocolError: as `receive`.
        """
        exchange = self._exchanges.get(neighbour)
        if exchange is None:
            return []
        try:
            return exchange.receive_statements(payload, now)
        except RemoteProtocolError:
            del self._exchanges[neighbour]
            raise

    def count_wrong_signature(self, neighbour: NodeId, now: float) -> bool:
        """Count a statement of a neighbour with a wrong signature. Return False if the rest of its
        event must be dropped, because there are too many. Safe to call in a thread.
        """
        statements = self._statements.get(neighbour)
        return statements is not None and statements.count_wrong_signature(now)

    def _take(
        self, exchange: CardExchange, encoded: bytes, now: float, now_ms: int
    ) -> NodeId | None:
        """Handle a received card; return its origin if it was refused because of its clock."""
        try:
            card = self._read(encoded)
        except LbmDecodeError:
            self.cards.refused[CardRefusal.MALFORMED] += 1
            return None
        exchange.received_card(card)
        if card.origin == self.node_id:
            self._receive_own_card(card)
            return None
        refusal = self.cards.take(card, now, now_ms)
        if refusal is None:
            self._spread(card)
        elif refusal is CardRefusal.FORGED:
            which = f"card {card.number} of {card.origin.short}"
            raise violation(f"{which} has a wrong signature: honest servers verify first")
        return card.origin if refusal in _OF_CLOCK else None

    def _receive_own_card(self, card: Card) -> None:
        """Handle a card of this server from before its restart: later cards must have higher
        numbers.
        """
        if self._card is not None and card.number <= self._card.number:
            return
        try:
            card.envelope.verify(None if self._card is None else self._card.envelope)
        except SignatureError:
            self.cards.refused[CardRefusal.FORGED] += 1
            raise violation(f"a forged card of this server, with number {card.number}") from None
        self._highest_seen = max(self._highest_seen, card.number)

    def _spread(self, card: Card) -> None:
        for exchange in self._exchanges.values():
            exchange.news(card)

    # Paths.

    def path(self, to: Sequence[NodeId]) -> Path | None:
        """Return the path to another server or [home, node]; None if the cards contain none."""
        return self._finder.path(to)

    def attempts(
        self, to: Sequence[NodeId], timeout: float, dialler: NodeId | None = None
    ) -> Attempts:
        """Return the attempts to reach a server or [home, node] within `timeout` seconds in total.

        `dialler` is the account that dials, or None for this server.
        """
        return Attempts(self._finder, to, timeout, dialler)

    def leads_to_account(self, path: Path) -> bool:
        """Return whether a path ends in an account, as far as known: no card contains its last
        step.
        """
        card = self.cards.get(path[-2])
        return card is None or path[-1] not in card.links

    def leads_around(self, to: Sequence[NodeId], now: float) -> bool:
        """Return whether the best path has an obstacle that failed recently, and another path
        avoids it.
        """
        return self._finder.path_around(to, now) not in (None, self._finder.path(to))

    # Time.

    def next_deadline(self, now: float) -> float | None:
        """Return the time at which to call `handle_deadline`, by the clock of `now`."""
        deadlines = []
        if self._deadline is not None:
            deadlines.append(self._deadline)
        expiry = self.cards.next_expiry()
        if expiry is not None:
            deadlines.append((expiry - self._wall) / 1000)
        release = self.cards.next_release()
        if release is not None:
            deadlines.append(release)
        if self._closed_links:
            deadlines.append(next(iter(self._closed_links.values())) + LINK_REMEMBERED)
        if self._card is not None:
            # An exchange with cards to send waits for its stream, and not for a time.
            times = (exchange.next_at() for exchange in self._exchanges.values())
            deadlines += [time for time in times if time is not None and time > now]
        return min(deadlines, default=None)

    def handle_deadline(self, now: float, now_ms: int) -> None:
        """Renew this server's card if necessary, and delete expired data. It is safe to call too
        early.
        """
        self._wall = now_ms - now * 1000
        while self._closed_links:
            neighbour = next(iter(self._closed_links))
            if self._closed_links[neighbour] + LINK_REMEMBERED > now:
                break
            del self._closed_links[neighbour]
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
            # Links that come up together, when servers start, are listed in one card.
            if self._first_due is None:
                self._first_due = now + self._settle
            due = self._first_due
        else:
            # If the clock was set back, the card's time is in the future for other servers.
            made = card.made_ms
            renewal = made + _CARD_RENEWED_MS if made <= now_ms else now_ms
            changed = self._stale or links != self._listed_links or card.number < self._highest_seen
            due = now if changed else now + (renewal - now_ms) / 1000
        self._deadline = max(due, self._made_at + CARD_INTERVAL)
        if self._deadline > now:
            return
        number = max(now_ms, self._highest_seen + 1, card.number + 1 if card else 1)
        made_card = self._read(self._sign(min(number, MAX_UINT), now_ms, links))
        self._card, self._listed_links, self._stale, self._made_at = made_card, links, False, now
        self._deadline = now + CARD_RENEWED
        self.cards.put(made_card)
        self._spread(made_card)

    def _listed(self) -> dict[NodeId, bool]:
        """Return the open links, and as many recently closed links as fit."""
        listed = [*self._links, *reversed(self._closed_links)][:MOST_LINKS]
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

    def _check_card_size(self) -> None:
        """Raise ConfigError unless a card with the maximum number of links fits."""
        self._sign(
            MAX_UINT,
            0,
            {NodeId(bytes((place,)) * NODE_ID_SIZE): True for place in range(MOST_LINKS)},
        )
