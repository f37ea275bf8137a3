"""Authenticates the users of the console: one-time links, and the sessions that they start.

A session needs two secrets. Browsers send the cookie, which scripts cannot read, to every port of
its host. The key stays with the page that received it. Both are needed, so that no other site or
port can make requests. Only hashes are stored. The module does no I/O: `now` is a monotonic clock
in seconds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from typing import Final

from parley._node.protocol.rate_limit import Rate, TokenBucket

SECRET_SIZE: Final = 24  # Bytes.
MOST_LINKS: Final = 16
MOST_SESSIONS: Final = 16
LINK_LIFE: Final = 600.0  # Seconds until an unopened link expires.
SESSION_LIFE: Final = 12 * 3600.0  # Seconds without a request.
ENTRIES: Final = Rate(10, 6.0)  # Attempts to open a link, by all clients.
REQUESTS: Final = Rate(60, 0.1)  # Requests of one session.
ACTIONS: Final = Rate(10, 1.0)  # Actions of one session, limited in addition.


@dataclass(frozen=True, slots=True)
class SessionSecrets:
    """The secrets of a new session, and whether it may run actions."""

    cookie: str
    key: str
    may_act: bool


class ConsoleSession:
    """The session of one browser. If `may_act` is False, it is read-only."""

    __slots__ = ("actions", "key_hash", "may_act", "requests", "until")

    def __init__(self, key_hash: bytes, now: float, *, may_act: bool) -> None:
        self.key_hash = key_hash
        self.may_act = may_act
        self.until = now + SESSION_LIFE
        self.requests = TokenBucket(REQUESTS)
        self.actions = TokenBucket(ACTIONS)


class ConsoleSessions:
    """The links and sessions of one console. `draw` returns random bytes."""

    def __init__(self, draw: Callable[[int], bytes]) -> None:
        self._draw = draw
        self._links: dict[
            bytes, tuple[float, bool]
        ] = {}  # The expiry time, and whether the session may act.
        self._sessions: dict[bytes, ConsoleSession] = {}
        self._entries = TokenBucket(ENTRIES)

    @property
    def count(self) -> int:
        return len(self._sessions)

    def make_link(self, now: float, *, may_act: bool = False) -> str:
        """Return the token of a link that opens the console once, within 10 minutes.

        At most 16 unopened links are valid; the newest are kept.
        """
        token = self._secret()
        self._links[_hash(token)] = now + LINK_LIFE, may_act
        while len(self._links) > MOST_LINKS:
            del self._links[next(iter(self._links))]
        return token

    def has_room(self, now: float) -> bool:
        """Count an attempt to open a link; return whether it is within the rate limit."""
        return self._entries.take(now)

    def redeem_link(self, token: str, now: float) -> SessionSecrets | None:
        """Start a session with a link's token; return None if the token is invalid.

        Beyond 16 sessions, the one that was idle for the longest time ends.
        """
        until, may_act = self._links.pop(_hash(token), (float("-inf"), False))
        if until <= now:
            return None
        cookie, key = self._secret(), self._secret()
        self._sessions[_hash(cookie)] = ConsoleSession(_hash(key), now, may_act=may_act)
        while len(self._sessions) > MOST_SESSIONS:
            del self._sessions[min(self._sessions, key=lambda one: self._sessions[one].until)]
        return SessionSecrets(cookie, key, may_act)

    def authenticate(self, cookie: str, key: str, now: float) -> ConsoleSession | None:
        """Return the session with these secrets, or None, and extend it to 12 hours from now."""
        hashed = _hash(cookie)
        session = self._sessions.get(hashed)
        if session is None or not compare_digest(session.key_hash, _hash(key)):
            return None
        if session.until <= now:
            del self._sessions[hashed]
            return None
        session.until = now + SESSION_LIFE
        return session

    def is_open(self, session: ConsoleSession) -> bool:
        return session in self._sessions.values()

    def leave(self, session: ConsoleSession) -> None:
        """End a session."""
        for hashed, one in list(self._sessions.items()):
            if one is session:
                del self._sessions[hashed]

    def _secret(self) -> str:
        return self._draw(SECRET_SIZE).hex()


def _hash(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "replace")).digest()
