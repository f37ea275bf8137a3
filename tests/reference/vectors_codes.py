"""Vectors for short codes (section 21): texts, exchanges, shares, confirmations, and tries."""

from dataclasses import dataclass, replace
from typing import Any, Final

from tests.reference import codes
from tests.reference.codes import CURVE, Giver, Refused
from tests.reference.groups import times
from tests.reference.primitives import HASH_SIZES, digest
from tests.reference.recorded import seed

Vector = dict[str, Any]
TAKER: Final = digest("sha256", b"the taker")
GIVER: Final = digest("sha256", b"the giver")
WORDS: Final = "crossover-clockwork"


def code_vectors() -> dict[str, Any]:
    """codes.json."""
    return {
        "about": "Short codes. `text`: what somebody types. `exchange`: both sides' messages. "
        "`share`: what a side does not take. `confirmation`: `claimed` is not what the side waits "
        "for. `tries`: steps of takers on connections of their own, at one giver.",
        "section": "21",
        "vectors": [
            *_text_vectors(),
            *_exchange_vectors(),
            *_share_vectors(),
            *_confirmation_vectors(),
            *_tries_vectors(),
        ],
    }


def _private(name: str) -> int:
    return int.from_bytes(seed(name), "little") % CURVE.order


@dataclass(frozen=True)
class Exchange:
    """All that goes into one; `x` and `y` are the private scalars."""

    slot: int = 7
    words: str = WORDS
    taker: bytes = TAKER
    giver: bytes = GIVER
    hash: str = "sha256"
    exporter: bytes = digest("sha256", b"exporter")
    session: bytes = seed("session id")[:32]
    x: int = _private("x")
    y: int = _private("y")

    def given(self) -> Vector:
        """The fields of the vector."""
        return {
            "slot": self.slot,
            "words": self.words,
            "taker": self.taker.hex(),
            "giver": self.giver.hex(),
            "hash": self.hash,
            "exporter": self.exporter.hex(),
            "session_id": self.session.hex(),
            "x": self.x.to_bytes(32, "little").hex(),
            "y": self.y.to_bytes(32, "little").hex(),
        }

    def shares(self) -> tuple[bytes, bytes]:
        """pA and pB."""
        w = codes.scalar(self.slot, self.words)
        return (
            codes.share(CURVE, w, self.x, first=True),
            codes.share(CURVE, w, self.y, first=False),
        )

    def aad(self) -> bytes:
        """What binds it to the session."""
        return codes.context(self.slot, self.hash, self.exporter, self.session)

    def confirmations(self, theirs: bytes = b"") -> tuple[bytes, bytes]:
        """Return cA and cB as the giver computes them; `theirs` replaces its own pA."""
        w = codes.scalar(self.slot, self.words)
        pa, pb = self.shares()
        k = codes.shared(CURVE, w, self.y, theirs or pa, first=False)
        tt = codes.transcript(self.taker, self.giver, theirs or pa, pb, k, w)
        return codes.confirmations(tt, self.aad())


PLAIN: Final = Exchange()


def _text_vectors() -> list[Vector]:
    good = {
        "7-crossover-clockwork": (7, WORDS),
        "7 Crossover  Clockwork": (7, WORDS),
        " 7-CROSSOVER-CLOCKWORK\n": (7, WORDS),
        "7 - crossover - clockwork": (7, WORDS),
        "1-adroitness-aardvark": (1, "adroitness-aardvark"),
        "9999-yucatan-zulu": (9999, "yucatan-zulu"),
        "10-apollo-algol": (10, "apollo-algol"),
    }
    bad = {
        "": "nothing",
        "7": "no words",
        "7-crossover": "one word",
        "7-crossover-clockwork-stairway": "three words",
        "crossover-clockwork": "no slot",
        "0-crossover-clockwork": "slot 0",
        "10000-crossover-clockwork": "a slot above 9,999",
        "07-crossover-clockwork": "a zero in front",
        "-7-crossover-clockwork": "a hyphen in front",
        "+7-crossover-clockwork": "a sign",
        "\u0667-crossover-clockwork": "a digit that is not ASCII",
        "7-clockwork-crossover": "the words in the other order",
        "7-crossover-crossover": "a word of the other list",
        "7-crossover-clockwork.": "a full stop",
        "7-crossover-clockwor": "a word that is cut",
        "7_crossover_clockwork": "other separators",
    }
    vectors: list[Vector] = []
    for text, (slot, words) in good.items():
        expected = {
            "slot": slot,
            "words": words,
            "w": codes.scalar(slot, words).to_bytes(32, "little").hex(),
        }
        vectors.append({"name": f"text: {text!r}", "kind": "text", "input": text})
        vectors[-1]["expected"] = expected
    vectors += [
        {"name": f"text: {why}", "kind": "text", "input": text, "fails": "refused", "why": why}
        for text, why in bad.items()
    ]
    return vectors


def _exchange_vectors() -> list[Vector]:
    cases = {
        "the example": PLAIN,
        "the last slot, other words": replace(PLAIN, slot=9999, words="yucatan-zulu"),
        "private scalars of 1": replace(PLAIN, x=1, y=1),
        "the greatest private scalars": replace(PLAIN, x=CURVE.order - 1, y=CURVE.order - 1),
    }
    for name in HASH_SIZES:
        cases[f"a session with {name}"] = replace(
            PLAIN, hash=name, exporter=digest(name, b"another exporter")
        )
    vectors: list[Vector] = []
    for name, exchange in cases.items():
        pa, pb = exchange.shares()
        ca, cb = exchange.confirmations()
        messages = [exchange.slot.to_bytes(2) + pa, pb, ca, cb]
        vectors.append({"name": f"exchange: {name}", "kind": "exchange", **exchange.given()})
        vectors[-1]["expected"] = {
            "aad": exchange.aad().hex(),
            "messages": [one.hex() for one in messages],
        }
    return vectors


def _share_vectors() -> list[Vector]:
    w, p = codes.scalar(7, WORDS), CURVE.p
    pa, _ = PLAIN.shares()
    torsion = CURVE.decode(bytes(32))  # of order 4
    known = {
        "giver": times(CURVE, w, CURVE.m),
        "taker": times(CURVE, w, CURVE.n),
    }
    cases = {
        "the neutral element": (1).to_bytes(32, "little"),
        "a point of order 2": (p - 1).to_bytes(32, "little"),
        "a point of order 4": bytes(32),
        "a point of 8 times the order": CURVE.encode(CURVE.add(CURVE.decode(pa), torsion)),
        "not on the curve": (2).to_bytes(32, "little"),
        "not canonical": (p + 1).to_bytes(32, "little"),
        "all bits": bytes([255]) * 32,
    }
    vectors: list[Vector] = []
    for side in ("taker", "giver"):
        shares = {**cases, "K would be the neutral element": CURVE.encode(known[side])}
        for name, share in shares.items():
            private = PLAIN.x if side == "taker" else PLAIN.y
            try:
                codes.shared(CURVE, w, private, share, first=side == "taker")
            except Refused as refused:
                why = str(refused)
            else:
                raise AssertionError(name)
            vectors.append(
                {
                    "name": f"share: {name}, to the {side}",
                    "kind": "share",
                    **PLAIN.given(),
                    "side": side,
                    "share": share.hex(),
                    "fails": "refused",
                    "why": why,
                }
            )
    return vectors


def _confirmation_vectors() -> list[Vector]:
    """To a giver, who waits for cA, and to a taker, who waits for cB."""
    ca, cb = PLAIN.confirmations()
    guess = replace(PLAIN, words="crossover-cobra")
    others = {
        "the other word": guess,
        "another slot": replace(PLAIN, slot=8),
        "another taker": replace(PLAIN, taker=digest("sha256", b"a middle")),
        "another giver": replace(PLAIN, giver=digest("sha256", b"a middle")),
        "the ids changed round": replace(PLAIN, taker=GIVER, giver=TAKER),
        "another session": replace(PLAIN, session=seed("another session id")[:32]),
        "another exporter": replace(PLAIN, exporter=digest("sha256", b"of a middle")),
        "the share of another exchange": replace(PLAIN, x=_private("x of another")),
    }
    claims = {name: exchange.confirmations() for name, exchange in others.items()}
    claims["reflected"] = (cb, ca)
    claims["all zeros"] = (bytes(32), bytes(32))
    claims["a bit changed"] = (bytes([ca[0] ^ 1]) + ca[1:], cb[:-1] + bytes([cb[-1] ^ 128]))
    vectors: list[Vector] = []
    for name, pair in claims.items():
        for side, claimed in zip(("giver", "taker"), pair, strict=True):
            vectors.append(
                {
                    "name": f"confirmation: {name}, to the {side}",
                    "kind": "confirmation",
                    **PLAIN.given(),
                    "side": side,
                    "claimed": claimed.hex(),
                    "fails": "mismatch",
                    "why": f"not c{'A' if side == 'giver' else 'B'}: {name}",
                }
            )
    return vectors


def _tries_vectors() -> list[Vector]:
    """Steps: [connection, seconds since the code was made, what]; `right` and `wrong` are message
    3, `break` breaks off, all others are message 1. Each ends with what the giver does."""
    wrong = [(n, 1.0, what) for n in range(3) for what in ("begin", "wrong")]
    cases: dict[str, list[tuple[int, float, str]]] = {
        "the first try is right": [(0, 1.0, "begin"), (0, 2.0, "right")],
        "two wrong ones, then the right one": [*wrong[:4], (3, 5.0, "begin"), (3, 5.0, "right")],
        "just in time": [(0, 599.0, "begin"), (0, 599.9, "right")],
        "breaking off is no try": [
            *[(n, 9.0 * n, what) for n in range(6) for what in ("begin", "break")],
            (7, 90.0, "begin"),
            (7, 90.0, "right"),
        ],
        "four at a time": [*[(n, 1.0, "begin") for n in range(4)], (2, 1.0, "right")],
        "after three wrong ones": [*wrong, (3, 2.0, "begin")],
        "the right one, begun before the third wrong one": [
            (3, 0.5, "begin"),
            *wrong,
            (3, 2.0, "right"),
        ],
        "too late": [(0, 600.0, "begin")],
        "begun in time, and shown too late": [(0, 599.0, "begin"), (0, 600.0, "right")],
        "taken already": [(0, 1.0, "begin"), (0, 1.0, "right"), (1, 2.0, "begin")],
        "a second taker, begun before": [
            (0, 1.0, "begin"),
            (1, 1.0, "begin"),
            (0, 2.0, "right"),
            (1, 2.0, "right"),
        ],
        "another slot": [(0, 1.0, "slot")],
        "a fifth at a time": [(n, 1.0, "begin") for n in range(5)],
        "a share that is refused": [(0, 1.0, "share")],
    }
    return [
        {"name": f"tries: {name}", "kind": "tries", **PLAIN.given(), **_tried(steps)}
        for name, steps in cases.items()
    ]


def _tried(steps: list[tuple[int, float, str]]) -> Vector:
    giver = Giver(7, WORDS)
    pa, _ = PLAIN.shares()
    ca, _ = PLAIN.confirmations()
    openings = {
        "begin": (7).to_bytes(2) + pa,
        "slot": (8).to_bytes(2) + pa,
        "share": (7).to_bytes(2) + bytes(32),
    }
    done: list[Any] = []
    refused: Refused | None = None
    for who, now, what in steps:
        refused = None
        try:
            if what == "break":
                del giver.expected[str(who)]
            elif what in openings:
                answer = giver.begin(
                    str(who), now, openings[what], TAKER, GIVER, PLAIN.aad(), PLAIN.y
                )
                assert answer == PLAIN.shares()[1]
            else:
                giver.confirm(str(who), now, ca if what == "right" else bytes(32))
        except Refused as error:
            refused = error
        done.append([who, now, what, 0 if refused is None else refused.code])
    outcome: Vector = {"steps": done, "failed": giver.failed}
    if refused is None:
        return outcome | {"expected": "taken"}
    return outcome | {"fails": "refused", "why": str(refused)}
