"""Vectors for seals and for encrypted events of one direction (section 6).

Each carries secret, chain value and commitment, so that a reader can
be set up without a handshake.
"""

from typing import Any

from tests.reference import primitives, wire
from tests.reference.primitives import (
    HASH_SIZES,
    SIGNATURE_SIZES,
    SIGNING_NAMES,
    CryptoFailure,
    SigningKey,
    verify,
)
from tests.reference.recorded import RecordedKey, seed
from tests.reference.sealing import SEAL_LABEL, Direction, Suite, masked, verify_seal
from tests.reference.vectors_wire import shown
from tests.reference.wire import Event, Violation

Vector = dict[str, Any]


def seal_vectors() -> dict[str, Any]:
    """seals.json."""
    vectors: list[Vector] = []
    for hash_name, size in HASH_SIZES.items():
        commit = (seed("commit") + seed("commit, more"))[:size]
        chain = (seed("chain value") + seed("chain value, more"))[:size]
        for signing in SIGNING_NAMES:
            if signing == "ml-dsa-65" and hash_name in ("blake2b-256", "blake3"):
                continue  # 20 KB each; two hashes show the 3,309 bytes of mask
            suite = Suite(signing=signing, hash=hash_name)
            key = SigningKey(signing, seed(f"identity {signing}"))
            signature = RecordedKey(key).sign(SEAL_LABEL + chain)
            seal = masked(suite, commit, chain, signature)
            mask = masked(suite, commit, chain, bytes(len(signature)))
            given = {
                "hash": hash_name,
                "signing": signing,
                "commit": commit.hex(),
                "chain": chain.hex(),
                "public": key.public.hex(),
            }
            vectors.append(
                {
                    "name": f"{signing}, {hash_name}",
                    **given,
                    "seed": key.seed.hex(),
                    "message": (SEAL_LABEL + chain).hex(),
                    "signature": signature.hex(),
                    "seal": seal.hex(),
                    "expected": {"mask": mask.hex()},
                }
            )
            if hash_name == "sha256" or (signing, hash_name) == ("ed25519", "blake3"):
                vectors += _wrong_seals(suite, key, commit, chain, seal, given)
    return {
        "about": "seal = signature over 'parley1 seal' || chain, XOR the mask of this chain value.",
        "section": "6",
        "vectors": vectors,
    }


def _wrong_seals(
    suite: Suite, key: SigningKey, commit: bytes, chain: bytes, seal: bytes, given: Vector
) -> list[Vector]:
    title = suite.signing if suite.hash == "sha256" else f"{suite.signing}, {suite.hash}"
    other = SigningKey(suite.signing, seed(f"another {suite.signing}"))
    signer = RecordedKey(key)

    def mask(signature: bytes) -> bytes:
        return masked(suite, commit, chain, signature)

    wrong = {
        "one bit changed": seal[:-1] + bytes([seal[-1] ^ 1]),
        "the signature without its mask": mask(seal),
        "another node's signature": mask(RecordedKey(other).sign(SEAL_LABEL + chain)),
        "a signature without the label": mask(signer.sign(chain)),
        "the label of a key binding": mask(signer.sign(b"parley1 key binding" + chain)),
        "a signature of another chain value": mask(signer.sign(SEAL_LABEL + seed("other")[:32])),
    }
    if suite.signing == "ecdsa-p256":
        plain = mask(seal)
        high = primitives.P256_ORDER - int.from_bytes(plain[32:])
        wrong["high s"] = mask(plain[:32] + high.to_bytes(32))
    if suite.signing == "ml-dsa-65":
        wrong = {name: wrong[name] for name in ("one bit changed", "a signature without the label")}
    vectors: list[Vector] = []
    for name, data in wrong.items():
        try:
            verify(suite.signing, key.public, SEAL_LABEL + chain, mask(data))
        except CryptoFailure:
            vectors.append(
                {
                    "name": f"{title}: {name}",
                    **given,
                    "seal": data.hex(),
                    "fails": "seal-violation",
                    "why": name,
                }
            )
            continue
        raise AssertionError(name)
    return vectors


class Script:
    """A writer with fixed secrets, and the vector that its events make."""

    def __init__(self, suite: Suite) -> None:
        size = HASH_SIZES[suite.hash]
        self.suite = suite
        self.key = SigningKey(suite.signing, seed(f"identity {suite.signing}"))
        self.start = tuple(
            (seed(name) + seed(name + ", more"))[:size]
            for name in ("ap secret", "chain value", "commit")
        )
        self.writer = Direction(suite, *self.start)
        self.signer = RecordedKey(self.key)

    def write(self, event: Event, sealed: bool, **options: Any) -> bytes:
        """One event of the script."""
        return self.writer.write(event.stream, event.inner, self.signer, sealed=sealed, **options)

    def vector(self, name: str, events: list[bytes], seal_events: int = 64) -> Vector:
        """The inputs; `expected` or `fails` as a plain reader finds it."""
        secret, chain, commit = self.start
        suite = self.suite
        vector: Vector = {
            "name": name,
            "suite": {
                "signing": suite.signing,
                "hash": suite.hash,
                "cipher": suite.cipher,
                "sealing": suite.sealing,
            },
            "secret": secret.hex(),
            "chain": chain.hex(),
            "commit": commit.hex(),
            "public": self.key.public.hex(),
            "seal_events": seal_events,
            "events": [event.hex() for event in events],
        }
        reader, unsealed, opened = Direction(suite, *self.start), 0, []
        for at, event in enumerate(events):
            try:
                got = reader.read(event)
                if got.form:
                    verify_seal(suite, self.key.public, got)
                if not got.form and got.event.type in wire.ALWAYS_SEALED_TYPES:
                    raise Violation("seal-violation", "must be sealed")
                unsealed = 0 if got.form else unsealed + 1
                if unsealed > seal_events:
                    raise Violation("seal-violation", "too many unsealed events")
            except Violation as violation:
                return vector | {"fails": violation.code, "at": at, "why": violation.why}
            opened.append({**shown(got.event), "sealed": bool(got.form)})
        return vector | {"expected": {"events": opened, "chain": reader.chain.hex()}}


def sealed_event_vectors() -> dict[str, Any]:
    """sealed-events.json."""
    vectors: list[Vector] = []
    for suite in (
        Suite(),
        Suite(signing="ecdsa-p256", hash="sha512", cipher="xchacha20-poly1305"),
        Suite(hash="blake2b-256", cipher="chacha20-poly1305", sealing="each"),
        Suite(signing="ecdsa-p256", sealing="each"),
        Suite(hash="blake3"),
    ):
        vectors += _suite_script(suite)
    large = Script(Suite(signing="ml-dsa-65"))
    events = [large.write(Event(1, 0, 64, 1, b"ml-dsa"), sealed=True)]
    vectors.append(large.vector("ml-dsa-65, chain: one sealed event", events))
    return {
        "about": "Encrypted events of one direction in the order of the wire; a reader set up with "
        "secret, chain and commit opens them, or fails at the index `at`.",
        "section": "6",
        "vectors": vectors,
    }


def _suite_script(suite: Suite) -> list[Vector]:
    title = f"{suite.signing}, {suite.hash}, {suite.cipher}, {suite.sealing}"
    call = Event(1, 7, 3, 1, wire.cells_payload(topic="parley.echo", data="hello"))
    data, ping = Event(3, 0, 2, 5, b"\x00"), Event(0, 1, 1, 6)
    seal, close = Event(0, 0, 1, 8), Event(0, 0, 1, 12, wire.cells_payload(code=0))

    def written(*plan: tuple[Event, bool]) -> tuple[Script, list[bytes]]:
        script = Script(suite)
        return script, [script.write(event, sealed) for event, sealed in plan]

    usual = ((call, False), (data, False), (ping, True), (data, False), (seal, True), (close, True))
    script, events = written(*usual)
    vectors = [script.vector(f"{title}: six events", events)]

    def variant(name: str, changed: list[bytes], seal_events: int = 64) -> None:
        vectors.append(script.vector(f"{title}: {name}", changed, seal_events))
        if "fails" not in vectors[-1]:
            raise AssertionError(name)

    flip_last = events[0][:-1] + bytes([events[0][-1] ^ 1])
    variant("a bit of the tag changed", [flip_last])
    variant("a bit of the stream id changed", [events[0][:3] + b"\0" + events[0][4:]])
    variant("the first event missing", events[1:])
    variant("an event of another stream missing", [events[0], *events[2:]])
    variant("the first event twice", [events[0], events[0]])
    variant("two events of two streams exchanged", [events[1], events[0]])
    variant("an event of 24 bytes", [events[0][:24]])
    variant("an event cut by one byte", [events[0][:-1]])
    variant("a stream id alone", [events[0][:4]])
    bad, changed = written((call, False))
    changed.append(bad.write(ping, sealed=True, flip_seal=True))
    variant("a changed seal", changed)
    size = SIGNATURE_SIZES[suite.signing]
    if suite.sealing == "chain":
        variant("form byte 2", [events[0][:4] + b"\x02" + events[0][5:]])
        variant("form byte 1 on an unsealed event", [events[0][:4] + b"\x01" + events[0][5:]])
        stripped = events[2][:4] + b"\x00" + events[2][5:21] + events[2][21 + size :]
        variant("a seal stripped on the way", [*events[:2], stripped])
        other_chain = events[0][:5] + bytes([events[0][5] ^ 1]) + events[0][6:]
        variant("a bit of the 16-byte chain value changed", [other_chain])
        for event in (seal, close, Event(0, 0, 1, 9, wire.cells_payload(epoch=1))):
            name = f"{event.category}/{event.subcategory} in form 0"
            variant(name, written((event, False))[1])
        three = [(data, False)] * 3
        script, events = written(*three, (ping, True), *three)
        vectors.append(script.vector(f"{title}: seal_events 3 is kept", events, 3))
        variant("one unsealed event more than seal_events", written(*three, (data, False))[1], 3)
    else:
        exchanged = events[0][:4] + events[2][4 : 4 + size] + events[0][4 + size :]
        variant("the seal of another event", [exchanged])
    return vectors
