"""Whole connections from seeds: Hello to Close, with every secret on the way.

Both sides are played here with the pure parts of this package, no
sockets. The vectors that fail change one event of a good connection.
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

from tests.reference import handshake, schedule, wire
from tests.reference.cbor import encode_payload
from tests.reference.exchange import KEX_NAMES, Offer
from tests.reference.handshake import Config
from tests.reference.identity import Identity, read_identity
from tests.reference.primitives import SigningKey
from tests.reference.recorded import RecordedKey, recorded_answer, seed
from tests.reference.sealing import Direction, Suite, verify_seal
from tests.reference.wire import CELLS, TYPES, Event, Violation, cells_payload

Vector = dict[str, Any]
SIDES: Final = ("initiator", "responder")
SUITES: Final = {
    "defaults": (Suite(), None, False),
    "Retry, everything else": (
        Suite("x25519", "ecdsa-p256", "sha512", "xchacha20-poly1305", "each"),
        None,
        True,
    ),
    "ml-dsa-65 and a network key": (
        Suite("x25519", "ml-dsa-65", "blake2b-256", "chacha20-poly1305", "chain"),
        seed("network key"),
        False,
    ),
    "blake3": (Suite("x25519", hash="blake3"), None, False),
}


class Play:
    """One connection, played event by event."""

    def __init__(self, suite: Suite, network_key: bytes | None, retry: bool) -> None:
        self.suite, self.network_key = suite, network_key
        self.keys = {
            side: SigningKey(suite.signing, seed(f"{side} {suite.signing}")) for side in SIDES
        }
        self.events: list[tuple[str, bytes]] = []
        self.opened: list[Vector] = []
        self.directions: dict[str, Direction] = {}
        self._handshake(retry)

    def _handshake(self, retry: bool) -> None:
        suite = self.suite
        offers = {
            kex: Offer(kex, seed(f"x25519 {kex}"), seed("ml-kem d") + seed("ml-kem z"))
            for kex in KEX_NAMES
        }
        self.offer = offers[suite.kex]
        config = Config(
            Identity((self.keys["initiator"],)),
            signing=(suite.signing,),
            hash=(suite.hash,),
            cipher=(suite.cipher,),
            sealing=(suite.sealing,),
            network_key=self.network_key,
        )
        random = seed("hello random")
        if retry:
            first = handshake.hello_event(config, random, [offers[KEX_NAMES[0]]])
            self.events += [("initiator", first), ("responder", handshake.retry_event(suite.kex))]
        hello = handshake.hello_event(config, random, [self.offer])
        share, secret = recorded_answer(self.offer, seed("responder x25519"))
        reply = handshake.reply_event(config, seed("reply random"), suite, share)
        self.events += [("initiator", hello), ("responder", reply)]
        t1 = b"".join(event for _, event in self.events)
        self.hs = schedule.handshake_keys(suite.hash, t1, secret, self.network_key)
        self.shared = secret
        writers = {
            "responder": Direction(
                suite, self.hs.hs_responder, schedule.chain_start_responder(self.hs), self.hs.commit
            )
        }
        proof_r = self._proof("responder", writers)
        start = schedule.chain_start_initiator(self.hs, proof_r)
        writers["initiator"] = Direction(suite, self.hs.hs_initiator, start, self.hs.commit)
        proof_i = self._proof("initiator", writers)
        self.ap = schedule.application_keys(self.hs, proof_r, proof_i)
        for side, secret in zip(SIDES, (self.ap.ap_initiator, self.ap.ap_responder), strict=True):
            chain = schedule.chain_bind(suite.hash, writers[side].chain, self.ap.th2)
            self.directions[side] = Direction(suite, secret, chain, self.hs.commit)

    def _proof(self, side: str, writers: dict[str, Direction]) -> bytes:
        cells = {
            CELLS["keys"]: [[self.suite.signing, self.keys[side].public, None]],
            CELLS["node"]: {"name": side, "software": "reference"},
        }
        inner = Event(0, 0, *TYPES["Proof"], encode_payload(cells)).inner
        event = writers[side].write(0, inner, RecordedKey(self.keys[side]), sealed=True)
        self.events.append((side, event))
        return event

    def send(self, side: str, name: str, stream: int, async_id: int = 0, /, **cells: Any) -> bytes:
        """One event after the handshake, of cells or of `bytes`; the chain value behind it."""
        payload = cells.get("bytes", b"") or (cells_payload(**cells) if cells else b"")
        event = Event(stream, async_id, *TYPES[name], payload)
        sealed = name in wire.ALWAYS_SEALED or name == "Result"
        direction = self.directions[side]
        data = direction.write(stream, event.inner, RecordedKey(self.keys[side]), sealed=sealed)
        self.events.append((side, data))
        self.opened.append(
            {
                "from": side,
                "stream": stream,
                "async_id": async_id,
                "category": event.category,
                "subcategory": event.subcategory,
                "payload": event.payload.hex(),
                "sealed": bool(sealed) or self.suite.sealing == "each",
            }
        )
        return direction.chain

    def rekey(self, offerer: str) -> schedule.RekeyKeys:
        """A whole rekey; the answerer's KeyUpdate comes first."""
        answerer = SIDES[offerer == "initiator"]
        offer = Offer(self.suite.kex, seed("rekey x25519"), seed("rekey d") + seed("rekey z"))
        share, secret = recorded_answer(offer, seed("rekey answer x25519"))
        a = self.send(offerer, "RekeyOffer", 0, share=offer.share)
        b = self.send(answerer, "RekeyAnswer", 0, share=share)
        keys = schedule.rekey_keys(self.suite.hash, self.ap.rekey, secret, a, b)
        secrets = dict(zip(SIDES, (keys.next_initiator, keys.next_responder), strict=True))
        for side in (answerer, offerer):
            direction = self.directions[side]
            self.send(side, "KeyUpdate", 0, epoch=direction.epoch + 1, rekey=1)
            direction.replace(secrets[side])
            direction.chain = schedule.chain_rekey(self.suite.hash, direction.chain, keys.rcommit)
        return keys

    def update(self, side: str) -> None:
        """A plain KeyUpdate."""
        direction = self.directions[side]
        self.send(side, "KeyUpdate", 0, epoch=direction.epoch + 1)
        direction.replace(schedule.updated(self.suite.hash, direction.secret))


def connection_vectors() -> dict[str, Any]:
    """connections.json."""
    vectors: list[Vector] = []
    for name, (suite, network_key, retry) in SUITES.items():
        play = Play(suite, network_key, retry)
        proofs = len(play.events)
        play.send("initiator", "Call", 1, 7, topic="parley.echo", data="hello")
        play.send("responder", "Result", 1, 7, code=0, data="hello")
        play.send("initiator", "Open", 3, label="app/test")
        play.update("initiator")
        play.send("initiator", "Finish", 3)
        rekey = play.rekey("responder" if retry else "initiator")
        play.send("initiator", "Call", 1, 8, topic="parley.info")
        play.send("responder", "Result", 1, 8, code=0)
        play.send("initiator", "Close", 0, code=0)
        vector = _described(name, play, rekey, retry)
        vectors.append(vector)
        if suite.signing != "ml-dsa-65":
            vectors += _changed(name, play, vector, proofs, rekey)
    return {
        "about": "Whole connections; every private key is in the vector. Where one fails, `at` is "
        "the index of the first event that is refused, by the side that receives it. Those "
        "refer to the good connection `of` and replace events of it.",
        "section": "5, 6",
        "vectors": vectors,
    }


def _described(name: str, play: Play, rekey: schedule.RekeyKeys, retry: bool) -> Vector:
    secrets = {"shared_secret": play.shared.hex()}
    for record in (play.hs, play.ap):
        secrets |= {k: v.hex() for k, v in asdict(record).items() if k not in ("hash", "t1")}
    rekeyed = {f"rekey_{k}": v.hex() for k, v in asdict(rekey).items()}
    return {
        "name": name,
        "suite": asdict(play.suite),
        "network_key": play.network_key.hex() if play.network_key else None,
        "retry": retry,
        "signing_seeds": {side: key.seed.hex() for side, key in play.keys.items()},
        "initiator_x25519_private": play.offer.scalar.hex(),
        "initiator_mlkem768_seed": play.offer.seed.hex() if play.suite.kex != "x25519" else None,
        "rekey_offerer_x25519_private": seed("rekey x25519").hex(),
        "rekey_offerer_mlkem768_seed": (seed("rekey d") + seed("rekey z")).hex(),
        "events": [{"from": side, "event": event.hex()} for side, event in play.events],
        "expected": {
            "secrets": secrets | rekeyed,
            "opened": play.opened,
            "final_chain": {side: play.directions[side].chain.hex() for side in SIDES},
            "node_ids": {s: Identity((key,)).id.hex() for s, key in play.keys.items()},
        },
    }


def _changed(
    name: str, play: Play, good: Vector, proofs: int, rekey: schedule.RekeyKeys
) -> list[Vector]:
    reply = next(n for n in range(proofs) if play.events[n][1][6:8] == bytes(TYPES["Reply"]))

    def flip(at: int) -> Callable[[bytes], bytes]:
        return lambda event: event[:at] + bytes([event[at] ^ 1]) + event[at + 1 :]

    responder, initiator = reply + 1, reply + 2
    foreign = Play(play.suite, seed("another network"), good["retry"]).events
    plans: list[tuple[str, int, bytes]] = [
        ("a bit of the responder's Proof", responder, flip(-1 % 60)(play.events[responder][1])),
        (
            "the last bit of the initiator's Proof",
            initiator,
            play.events[initiator][1][:-1] + bytes([play.events[initiator][1][-1] ^ 1]),
        ),
        ("the responder's Proof of another session", responder, foreign[responder][1]),
        ("the initiator's Proof of another session", initiator, foreign[initiator][1]),
        (
            "the responder's Proof reflected as the initiator's",
            initiator,
            play.events[responder][1],
        ),
        ("a raw Reject after the Reply", responder, handshake.reject_event("protocol-error", "x")),
        ("a replayed Call", proofs + 1, play.events[proofs][1]),
        # The initiator's last three are its KeyUpdate, a Call and Close.
        (
            "the last event of the old epoch again",
            len(play.events) - 1,
            [event for side, event in play.events if side == "initiator"][-3],
        ),
    ]
    vectors: list[Vector] = []
    for title, at, event in plans:
        side = play.events[at][0]
        code = _refusal(play, at, side, event, responder, rekey)
        if code is None:
            raise AssertionError(title)
        vectors.append(
            {
                "name": f"{name}: {title}",
                "of": good["name"],
                "at": at,
                "from": side,
                "event": event.hex(),
                "fails": code,
                "why": title,
            }
        )
    return vectors


def _refusal(
    play: Play, at: int, side: str, changed: bytes, responder: int, rekey: schedule.RekeyKeys
) -> str | None:
    """Reads the events of one direction up to the changed one; the Violation's code, if any."""
    suite, keys = play.suite, play.hs
    if side == "responder":
        start, secret = schedule.chain_start_responder(keys), keys.hs_responder
    else:
        start = schedule.chain_start_initiator(keys, play.events[responder][1])
        secret = keys.hs_initiator
    reader = Direction(suite, secret, start, keys.commit)
    proof_at = responder + (side == "initiator")
    public = play.keys[side].public
    number = -1
    try:
        for number, (sender, event) in enumerate(play.events[: at + 1]):
            if (sender != side and number != at) or number < proof_at:
                continue
            opened = reader.read(changed if number == at else event)
            if number == proof_at:
                public = read_identity(opened.event.cells()[14]).keys[suite.signing]
            if opened.form:
                verify_seal(suite, public, opened)
            if number == proof_at:
                secret = play.ap.ap_initiator if side == "initiator" else play.ap.ap_responder
                chain = schedule.chain_bind(suite.hash, reader.chain, play.ap.th2)
                reader = Direction(suite, secret, chain, keys.commit)
            if opened.event.type == TYPES["KeyUpdate"] and 33 not in opened.event.cells():
                reader.replace(schedule.updated(suite.hash, reader.secret))
            elif opened.event.type == TYPES["KeyUpdate"]:
                reader.replace(play.directions[side].secret)
                reader.chain = schedule.chain_rekey(suite.hash, reader.chain, rekey.rcommit)
    except Violation as violation:
        if number != at:
            raise AssertionError(f"event {number} is refused, not {at}") from violation
        return violation.code
    return None
