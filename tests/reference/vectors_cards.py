"""Vectors for envelopes and cards (section 19).

A case is one change of a valid card; the reference determines its outcome.
"""

from collections.abc import Iterator
from typing import Any

from tests.reference import cbor
from tests.reference.envelopes import (
    CardTable,
    Dropped,
    ReadCard,
    enclose,
    read_envelope,
    signed_message,
)
from tests.reference.identity import Identity, commit, node_id
from tests.reference.primitives import P256_ORDER, SIGNING_NAMES, SigningKey
from tests.reference.recorded import RecordedKey, seed
from tests.reference.vectors_identity import SMALL_ORDER
from tests.reference.wire import CELLS

Vector = dict[str, Any]
NOW = 1_800_000_000_000
KEYS = [SigningKey("ed25519", seed(f"server {number}")) for number in range(5)]
IDS = [node_id("ed25519", key.public) for key in KEYS]
OWN, SERVER, OTHER, FAR, STRANGER = IDS
OF_KIND = {name: SigningKey(name, seed(f"server {name}")) for name in SIGNING_NAMES}
RECOVERABLE = Identity(
    (KEYS[1],), commit("ed25519", KEYS[1].public, SigningKey("ed25519", seed("server recovery")))
)
EXPORTS = ["shop.*", "news"]
ADDRESSES = ["tcp://b.example:4747"]


MEMBERS = {
    *(SERVER, OTHER, FAR),
    *(node_id("ed25519", p) for p in (bytes.fromhex(SMALL_ORDER["order 8"]), KEYS[1].public[1:])),
    *(node_id(n, key.public) for n, key in OF_KIND.items()),
    RECOVERABLE.id,
}
OWN_NUMBER = NOW - 500
KNOWN = {SERVER: NOW - 2_000}
# What the server knows that gets a card.
TABLE: Vector = {
    "own": OWN.hex(),
    "own_seed": KEYS[0].seed.hex(),
    "own_number": OWN_NUMBER,
    "members": sorted(member.hex() for member in MEMBERS),
    "now_ms": NOW,
}


def content_of(key: SigningKey, **changes: Any) -> dict[int, Any]:
    """The content of a card that is right, as cells; a change to None takes a cell away."""
    cells: dict[str, Any] = {
        "kind": "card",
        "origin": node_id(key.algorithm, key.public),
        "made_ms": NOW - 1_000,
        "expires_ms": NOW - 1_000 + 3_600_000,
        "keys": [[key.algorithm, key.public, None]],
        "number": NOW - 1_000,
        "links": [[OWN, True], [OTHER, False]],
        "exports": EXPORTS,
        "addresses": ADDRESSES,
    }
    named = {**cells, **changes}
    return {
        CELLS[name] if name in CELLS else int(name[1:]): value
        for name, value in named.items()
        if value is not None
    }


def card_of(key: SigningKey, **changes: Any) -> bytes:
    """The envelope of a card."""
    content = cbor.encode_payload(content_of(key, **changes))
    return enclose(key.algorithm, RecordedKey(key), content)


TABLE["known"] = [card_of(KEYS[1], number=number, links=[]).hex() for number in KNOWN.values()]


def envelope_vectors() -> list[Vector]:
    """Contents in envelopes, by each algorithm."""
    vectors: list[Vector] = []
    for name, key in OF_KIND.items():
        content = cbor.encode_payload(content_of(key, exports=[], addresses=[]))
        vectors.append(
            {
                "name": f"envelope: {name}",
                "kind": "envelope",
                "signing": name,
                "seed": key.seed.hex(),
                "content": content.hex(),
                "expected": {
                    "origin": node_id(name, key.public).hex(),
                    "message": signed_message(name, content).hex(),
                    "envelope": enclose(name, RecordedKey(key), content).hex(),
                },
            }
        )
    return vectors


def outer(**cells: Any) -> bytes:
    """A payload of cells by name, or by number: `_300`."""
    return cbor.encode_payload(
        {CELLS[n] if n in CELLS else int(n[1:]): v for n, v in cells.items()}
    )


def _malformed() -> Iterator[tuple[str, bytes]]:
    key = KEYS[1]
    content = cbor.encode_payload(content_of(key))
    signature = key.sign(signed_message("ed25519", content))
    whole = {"content": content, "signing": "ed25519", "signature": signature}
    yield "an envelope with another cell", outer(**whole, _300=1)
    yield "an envelope with noise", outer(**whole, _0=bytes(4))
    for name in whole:
        yield f"an envelope without {name}", outer(**{n: v for n, v in whole.items() if n != name})
    yield "an envelope whose content is a map", outer(**{**whole, "content": content_of(key)})
    yield "an envelope whose signing is a number", outer(**{**whole, "signing": 1})
    yield "an envelope with a byte more", outer(**whole) + b"\0"
    yield "nothing", b""
    low = cbor.encode_payload(content_of(key, number=5))
    for title, data in {
        "with a byte more": content + b"\0",
        "that is cut": content[:-1],
        "that is an array": b"\x80",
        "of indefinite length": b"\xbf" + content[1:] + b"\xff",
        "with a number not in its shortest form": low.replace(b"\x18\x39\x05", b"\x18\x39\x18\x05"),
    }.items():
        yield f"content {title}", enclose("ed25519", key, data)
    for kind in ("prekey", "mail", "Card", ""):
        yield f"content of the kind {kind!r}", card_of(key, kind=kind)
    for name in ("kind", "origin", "made_ms", "expires_ms", "keys", "number", "links"):
        yield f"content without {name}", card_of(key, **{name: None})
    own = ["ed25519", key.public, None]
    further = KEYS[2]
    for title, keys in {
        "no key": [],
        "two keys": [own, ["ecdsa-p256", OF_KIND["ecdsa-p256"].public, bytes(64)]],
        "a key that is bound": [[*own[:2], bytes(64)]],
        "a key without its binding": [own[:2]],
        "a key that is text": [["ed25519", "key", None]],
        "a key of an unknown algorithm": [["rsa", key.public, None]],
        "a key whose first byte is missing": [["ed25519", key.public[1:], None]],
        "another's key": [["ed25519", further.public, None]],
    }.items():
        yield f"content with {title}", card_of(key, keys=keys)
    commitment = RECOVERABLE.cell()[1]
    for title, keys in {
        "without the commitment": [own],
        "with the commitment first": [commitment, own],
        "with two commitments": [own, commitment, commitment],
        "with another commitment": [own, ["recovery", bytes(32), None]],
        "with a commitment of 31 bytes": [own, ["recovery", bytes(31), None]],
        "with another entry without a binding": [own, ["delegation", commitment[1], None]],
    }.items():
        yield (
            f"an origin with a recovery key {title}",
            card_of(key, keys=keys, origin=RECOVERABLE.id),
        )
    yield "the origin of another", card_of(key, origin=OTHER)
    yield "an origin of 31 bytes", card_of(key, origin=SERVER[1:])
    yield (
        "signing names another algorithm than the key",
        enclose("ecdsa-p256", OF_KIND["ecdsa-p256"], content),
    )
    yield "signing is not known", enclose("ed448", key, content)
    for name, values in _WRONG.items():
        for number, value in enumerate(values, 1):
            yield f"content with a wrong {name}, {number}", card_of(key, **{name: value})
    made = NOW - 1_000
    yield "valid for an hour and a millisecond", card_of(key, expires_ms=made + 3_600_001)
    yield "valid for no time", card_of(key, made_ms=NOW + 1, expires_ms=NOW + 1)
    yield "expires before it was made", card_of(key, made_ms=NOW + 2, expires_ms=NOW + 1)
    yield "of 8,193 bytes", _filled(key, 8_193)


_LINK = [OTHER, True]
_WRONG: dict[str, list[Any]] = {
    "number": ["1", -1, 0, 1.0, True],
    "made_ms": ["1", -1],
    "expires_ms": ["1", -1],
    "links": [
        *({}, [OTHER], [[OTHER]], [[OTHER, 1]], [[OTHER, None]], [[*_LINK, True]]),
        *([[OTHER[1:], True]], [[OTHER.hex(), True]], [_LINK, _LINK], [_LINK, [OTHER, False]]),
        [[bytes([n]) * 32, True] for n in range(65)],
    ],
    "exports": ["shop.*", [1], [b"shop.*"], ["e" * 257], ["e"] * 65],
    "addresses": ["tcp://b.example", [1], [b"tcp://b.example"]],
}


def _filled(key: SigningKey, size: int) -> bytes:
    """A card whose envelope has that size, by an address."""
    short = len(card_of(key, addresses=["a" * 6_000]))
    return card_of(key, addresses=["a" * (6_000 + size - short)])


def changed(envelope: bytes) -> bytes:
    """The same with a wrong signature."""
    return envelope[:-1] + bytes([envelope[-1] ^ 1])


def _signatures() -> Iterator[tuple[str, bytes]]:
    key = KEYS[1]
    content = cbor.encode_payload(content_of(key))
    right = card_of(key)
    yield "a signature with another last bit", changed(right)
    yield (
        "a signature over the content alone",
        outer(content=content, signing="ed25519", signature=key.sign(content)),
    )
    yield (
        "a signature without the length of its algorithm's name",
        outer(
            content=content,
            signing="ed25519",
            signature=key.sign(b"parley1 envelope" + b"ed25519" + content),
        ),
    )
    yield "the signature of another", enclose("ed25519", KEYS[2], content)
    yield (
        "a signature of 63 bytes",
        outer(content=content, signing="ed25519", signature=bytes(63)),
    )
    yield (
        "the signature of an older card",
        outer(
            content=content,
            signing="ed25519",
            signature=read_envelope(card_of(key, number=1)).signature,
        ),
    )
    p256 = read_envelope(card_of(OF_KIND["ecdsa-p256"]))
    high = P256_ORDER - int.from_bytes(p256.signature[32:])
    yield (
        "a high s",
        outer(
            content=p256.content,
            signing="ecdsa-p256",
            signature=p256.signature[:32] + high.to_bytes(32),
        ),
    )
    for title, public in {
        "of small order": bytes.fromhex(SMALL_ORDER["order 8"]),
        "of 31 bytes": key.public[1:],
    }.items():
        keys = [["ed25519", public, None]]
        yield f"a key {title}", card_of(key, keys=keys, origin=node_id("ed25519", public))
    yield "a wrong signature, made ahead of time", changed(card_of(key, **ahead(300_001)))


def ahead(by: int) -> dict[str, int]:
    """What a card has that was made so many milliseconds in the future."""
    return {"made_ms": NOW + by, "expires_ms": NOW + by + 1_000, "number": NOW + by}


def card_vectors() -> list[Vector]:
    """Return how a card is processed."""
    key = KEYS[1]
    many = [[bytes([n]) * 32, n % 2 == 0] for n in range(64)]
    right = {
        "as it should be": card_of(key),
        "without exports and addresses": card_of(key, exports=None, addresses=None),
        "without links": card_of(key, links=[]),
        "with 64 links": card_of(key, links=many),
        "with cells that are not known": card_of(key, _200=[1], _300={"a": b"b"}),
        "with cells of other types": card_of(key, code="0", path=1, mail_id="x"),
        "with noise in its content": card_of(key, _0=bytes(7)),
        "of 8,192 bytes": _filled(key, 8_192),
        "made 5 minutes ahead": card_of(key, **ahead(300_000)),
        "of an origin with a recovery key": card_of(
            key, keys=RECOVERABLE.cell(), origin=RECOVERABLE.id
        ),
        "that expires in a millisecond": card_of(key, made_ms=NOW - 3_599_999, expires_ms=NOW + 1),
        "that names itself": card_of(key, links=[[SERVER, True]]),
        "with the greatest number": card_of(key, number=2**64 - 1),
        **{f"of {name}": card_of(other) for name, other in OF_KIND.items()},
    }
    wrong = {
        **dict(_malformed()),
        **dict(_signatures()),
        "made more than 5 minutes ahead": card_of(key, **ahead(300_001)),
        "that expires now": card_of(key, made_ms=NOW - 3_600_000, expires_ms=NOW),
        "that has expired": card_of(key, made_ms=NOW - 3_600_001, expires_ms=NOW - 1),
        "whose number is known": card_of(key, number=NOW - 2_000),
        "whose number is below the known one": card_of(key, number=NOW - 2_001),
        "whose number is known, and with a wrong signature": changed(
            card_of(key, number=NOW - 2_000)
        ),
        "of a stranger": card_of(KEYS[4]),
        "of a stranger, with a wrong signature": changed(card_of(KEYS[4])),
    }
    own = {
        "of oneself, above the last": card_of(KEYS[0], number=NOW + 5, links=[]),
        "of oneself, above the last, from a clock that was ahead": card_of(
            KEYS[0], links=[], **ahead(10**9)
        ),
        "of oneself, and the last": card_of(KEYS[0], number=NOW - 500, links=[]),
        "of oneself, and older": card_of(KEYS[0], number=NOW - 501, links=[]),
        "of oneself, with a wrong signature": changed(card_of(KEYS[0], number=NOW + 5, links=[])),
    }
    return [_card(name, data) for name, data in {**right, **wrong, **own}.items()]


def _card(name: str, data: bytes) -> Vector:
    table = CardTable(OWN, MEMBERS, OWN_NUMBER)
    table.numbers.update(KNOWN)
    vector: Vector = {"name": f"card: {name}", "kind": "card", "input": data.hex()}
    try:
        card = table.take(data, NOW)
    except Dropped as dropped:
        return {**vector, "fails": dropped.reason, "why": dropped.why}
    if card.origin == OWN:
        return {**vector, "expected": {"next_number": table.next_number(NOW)}}
    return {**vector, "expected": _shown(card)}


def _shown(card: ReadCard) -> Vector:
    big = card.number > 2**53
    return {
        "origin": card.origin.hex(),
        "number": str(card.number) if big else card.number,
        "made_ms": card.made_ms,
        "expires_ms": card.expires_ms,
        "links": [[link.hex(), carries] for link, carries in card.links.items()],
        "exports": card.exports,
        "addresses": card.addresses,
    }
