"""How cards spread in a simulated federation: from when each was made until all had it."""

from parley._node.federation.cards import Card


class Spread:
    """What became of each card, by its origin and number. `seconds` are those that it took until
    all had it, of each card that was made while all links were open."""

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
        """Cards that were made."""
        return sum(map(len, self.made_at.values()))

    def made(self, card: Card, server: int, now: float, *, is_whole: bool) -> None:
        """This is the newest card of a server; nothing happens if it was before. `is_whole` says
        that all links are open."""
        if self._own.get(server) == card.number:
            return
        self._own[server] = card.number
        self.made_at.setdefault(server, []).append((now, card.number))
        self._had[card.origin, card.number] = (now if is_whole else None, 1 << server)

    def taken(self, card: Card, server: int, now: float) -> None:
        """A server has a card of another; nothing happens if it had it before."""
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
        """It has lost what it had."""
        self._own.pop(server, None)

    def newest(self, server: int, before: float) -> list[int]:
        """The numbers of the cards of a server that others may have if all that was made by a
        time has arrived: the last one from before it, and those after it."""
        made = self.made_at.get(server, [])
        late = [number for at, number in made if at > before]
        return [number for at, number in made if at <= before][-1:] + late
