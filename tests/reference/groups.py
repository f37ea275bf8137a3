"""Two groups of elliptic curves in plain integers, for SPAKE2: edwards25519 and P-256.

Slow, and in no constant time: it is for vectors. P-256 is here because RFC 9382 has its vectors
in that group alone.
"""

import hashlib
from functools import cache
from typing import Protocol

Point = tuple[int, int] | None  # None: the neutral element


class Group(Protocol):
    """What SPAKE2 asks of a group."""

    order: int
    cofactor: int
    base: Point
    m: Point
    n: Point

    def __hash__(self) -> int:
        """One group is one object."""

    def add(self, one: Point, other: Point) -> Point:
        """The sum."""

    def negate(self, point: Point) -> Point:
        """The inverse."""

    def encode(self, point: Point) -> bytes:
        """As it is sent."""

    def decode(self, data: bytes) -> Point:
        """Return the point that was sent. Raises ValueError if its encoding isn't the one that
        `encode` writes.
        """


@cache
def times(group: Group, scalar: int, point: Point) -> Point:
    """A multiple, by doubling and adding; vectors ask for the same ones again and again."""
    result: Point = None
    while scalar:
        if scalar & 1:
            result = group.add(result, point)
        point = group.add(point, point)
        scalar >>= 1
    return result


class Edwards25519:
    """RFC 8032, section 5.1."""

    p = 2**255 - 19
    order = 2**252 + 27742317777372353535851937790883648493
    cofactor = 8
    d = -121665 * pow(121666, -1, p) % p

    def __init__(self) -> None:
        self.base: Point = self.decode(bytes.fromhex("58" + "66" * 31))
        self.m: Point = self.seeded("edwards25519 point generation seed (M)")
        self.n: Point = self.seeded("edwards25519 point generation seed (N)")

    def add(self, one: Point, other: Point) -> Point:
        """Section 5.1.4, in affine coordinates."""
        (x1, y1), (x2, y2) = one or (0, 1), other or (0, 1)
        product = self.d * x1 * x2 * y1 * y2 % self.p
        both = pow(1 - product * product, -1, self.p)  # of (1 + product) and (1 - product)
        x = (x1 * y2 + x2 * y1) * (1 - product) * both % self.p
        y = (y1 * y2 + x1 * x2) * (1 + product) * both % self.p
        return None if (x, y) == (0, 1) else (x, y)

    def negate(self, point: Point) -> Point:
        """(-x, y)."""
        return None if point is None else (-point[0] % self.p, point[1])

    def encode(self, point: Point) -> bytes:
        """Section 5.1.2."""
        x, y = point or (0, 1)
        return (y | (x & 1) << 255).to_bytes(32, "little")

    def decode(self, data: bytes) -> Point:
        """Section 5.1.3."""
        number = int.from_bytes(data, "little")
        sign, y = number >> 255, number & (1 << 255) - 1
        if len(data) != 32 or y >= self.p:
            raise ValueError("not canonical")
        square = (y * y - 1) * pow(self.d * y * y + 1, -1, self.p) % self.p
        x = pow(square, (self.p + 3) // 8, self.p)
        if x * x % self.p != square:
            x = x * pow(2, (self.p - 1) // 4, self.p) % self.p
        if x * x % self.p != square or (x == 0 and sign):
            raise ValueError("not on the curve")
        x = x if x & 1 == sign else self.p - x
        return None if (x, y) == (0, 1) else (x, y)

    def seeded(self, seed: str) -> Point:
        """The point that RFC 9382, appendix A makes of a seed."""
        block = seed.encode()
        while True:
            block = hashlib.sha256(block).digest()
            try:
                point = self.decode(block)
            except ValueError:
                continue
            if point is not None and times(self, self.order, point) is None:
                return point


class P256:
    """SEC 2's secp256r1, with the points of RFC 9382, section 6."""

    p = 2**256 - 2**224 + 2**192 + 2**96 - 1
    b = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    cofactor = 1

    def __init__(self) -> None:
        self.base: Point = (
            0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
            0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
        )
        self.m: Point = self.decode(
            bytes.fromhex("02886e2f97ace46e55ba9dd7242579f2993b64e16ef3dcab95afd497333d8fa12f")
        )
        self.n: Point = self.decode(
            bytes.fromhex("03d8bbd6c639c62937b04d997f38c3770719c629d7014d49a24b4f98baa1292b49")
        )

    def add(self, one: Point, other: Point) -> Point:
        """The rule of chords and tangents."""
        if one is None or other is None:
            return one or other
        (x1, y1), (x2, y2) = one, other
        if x1 == x2 and (y1 + y2) % self.p == 0:
            return None
        if one == other:
            slope = (3 * x1 * x1 - 3) * pow(2 * y1, -1, self.p)
        else:
            slope = (y2 - y1) * pow(x2 - x1, -1, self.p)
        x = (slope * slope - x1 - x2) % self.p
        return x, (slope * (x1 - x) - y1) % self.p

    def negate(self, point: Point) -> Point:
        """(x, -y)."""
        return None if point is None else (point[0], -point[1] % self.p)

    def encode(self, point: Point) -> bytes:
        """Uncompressed; the neutral element is one zero byte."""
        return (
            b"\0"
            if point is None
            else b"\4" + b"".join(number.to_bytes(32, "big") for number in point)
        )

    def decode(self, data: bytes) -> Point:
        """Compressed or not."""
        x = int.from_bytes(data[1:33], "big")
        square = (x * x * x - 3 * x + self.b) % self.p
        y = pow(square, (self.p + 1) // 4, self.p)
        if y * y % self.p != square:
            raise ValueError("not on the curve")
        if data[0] == 4:
            y = int.from_bytes(data[33:], "big")
        elif y & 1 != data[0] & 1:
            y = self.p - y
        return x, y
