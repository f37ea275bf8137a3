"""Short codes (section 21): SPAKE2, the messages of the exchange, and the giver's attempts.

It doesn't depend on streams, homes or announcements.
"""

import hashlib
from dataclasses import dataclass, field

from tests.reference.groups import Edwards25519, Group, Point, times
from tests.reference.primitives import derive, expand, extract, hmac_of

CURVE = Edwards25519()
FAILED_TRIES = 3
AT_A_TIME = 4
SECONDS = 600.0


class Refused(Exception):
    """A message that a side rejects; `code` is the code of the Reset."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


def scalar(slot: int, words: str) -> int:
    """w."""
    data = b"parley1 code words" + slot.to_bytes(2) + words.encode()
    return int.from_bytes(hashlib.sha512(data).digest(), "little") % CURVE.order


def context(slot: int, hash_name: str, exporter: bytes, session: bytes) -> bytes:
    """AAD."""
    bound = derive(hash_name, exporter, "code", session, 32)
    return b"parley1 code session" + slot.to_bytes(2) + bound


def share(group: Group, w: int, private: int, *, first: bool) -> bytes:
    """pA, of the side that is first, or pB."""
    blinding = times(group, w, group.m if first else group.n)
    return group.encode(group.add(blinding, times(group, private, group.base)))


def shared(group: Group, w: int, private: int, theirs: bytes, *, first: bool) -> bytes:
    """Return K. Raises Refused for a share that yields no key."""
    try:
        point = group.decode(theirs)
    except ValueError as error:
        raise Refused(64, str(error)) from error
    if point is None or times(group, group.order, point) is not None:
        raise Refused(64, "not of the prime order")
    blinding = times(group, w, group.n if first else group.m)
    unblinded: Point = group.add(point, group.negate(blinding))
    found = times(group, group.cofactor * private, unblinded)
    if found is None:
        raise Refused(64, "K is the neutral element")
    return group.encode(found)


def transcript(a: bytes, b: bytes, pa: bytes, pb: bytes, k: bytes, w: int) -> bytes:
    """TT."""
    parts = (a, b, pa, pb, k, w.to_bytes(32, "big"))
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def keys(tt: bytes, aad: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """Ke, Ka, KcA, KcB."""
    made = hashlib.sha256(tt).digest()
    info = b"ConfirmationKeys" + aad
    confirming = expand("sha256", extract("sha256", bytes(32), made[16:]), info, 32)
    return made[:16], made[16:], confirming[:16], confirming[16:]


def confirmations(tt: bytes, aad: bytes) -> tuple[bytes, bytes]:
    """cA and cB."""
    _, _, of_a, of_b = keys(tt, aad)
    return hmac_of("sha256", of_a, tt), hmac_of("sha256", of_b, tt)


@dataclass
class Giver:
    """What a giver answers; `now` is seconds since the code was made."""

    slot: int
    words: str
    failed: int = 0
    taken: bool = False
    expected: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)

    def require_good(self, now: float) -> None:
        """Refused with 66 unless the code is good."""
        if self.taken or self.failed >= FAILED_TRIES or now >= SECONDS:
            raise Refused(66, "no such code any more")

    def begin(
        self, who: str, now: float, message: bytes, a: bytes, b: bytes, aad: bytes, private: int
    ) -> bytes:
        """Message 2, to message 1 on the connection `who`."""
        if len(message) != 34:
            raise Refused(64, "message 1 has 34 bytes")
        self.require_good(now)
        if int.from_bytes(message[:2], "big") != self.slot:
            raise Refused(66, "another slot")
        if len(self.expected) >= AT_A_TIME:
            raise Refused(67, "too many exchanges at a time")
        w = scalar(self.slot, self.words)
        k = shared(CURVE, w, private, message[2:], first=False)
        answer = share(CURVE, w, private, first=False)
        tt = transcript(a, b, message[2:], answer, k, w)
        self.expected[who] = confirmations(tt, aad)
        return answer

    def confirm(self, who: str, now: float, message: bytes) -> bytes:
        """Message 4, to message 3."""
        right, answer = self.expected.pop(who)
        self.require_good(now)
        if message != right:
            self.failed += 1
            raise Refused(65, "not cA")
        self.taken = True
        return answer
