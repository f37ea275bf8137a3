"""How long the cards of a simulated federation take to reach all servers."""

from parley._node.federation.cards import Card


class Spread:
    """The history of each card, by its origin and number. `seconds` has the time until all servers
    had a card, for cards made while all links were open.
    """

    def __init__(self, servers: int) -> None:
        self._everybody = (1 << servers) - 1
        self._own: dict[int, int] = {}
        self._had: dict[tuple[bytes, int], tuple[float | None, int]] = {}
        self.made_at: dict[int, list[tuple[float, int]]] = {}
        self.seconds: list[float] = []
        self.taken_count = 0
        self.last_taken = 0.0

    @property
    def made_count(self) -> int:
        """The number of cards made."""
        return sum(map(len, self.made_at.values()))

    def made(self, card: Card, server: int, now: float, *, is_whole: bool) -> None:
        """Record the newest card of a server, unless it is known. `is_whole` is whether all links
        are open.
        """
        if self._own.get(server) == card.number:
            return
        self._own[server] = card.number
        self.made_at.setdefault(server, []).append((now, card.number))
        self._had[card.origin, card.number] = (now if is_whole else None, 1 << server)

    def taken(self, card: Card, server: int, now: float) -> None:
        """Record that a server has the card of another, unless it is known."""
        made, had = self._had[card.origin, card.number]
        if had >> server & 1:
            return
        had |= 1 << server
        self.taken_count += 1
        self.last_taken = now
        self._had[card.origin, card.number] = (made, had)
        if had == self._everybody and made is not None:
            self.seconds.append(now - made)

    def restarted(self, server: int) -> None:
        """Record that a server has lost its cards."""
        self._own.pop(server, None)

    def newest(self, server: int, before: float) -> list[int]:
        """Return the card numbers of a server that others may have, if all cards made before a time
        have arrived: the last one before it, and all later ones.
        """
        made = self.made_at.get(server, [])
        late = [number for at, number in made if at > before]
        return [number for at, number in made if at <= before][-1:] + late
