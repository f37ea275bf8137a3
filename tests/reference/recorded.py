"""ML-DSA signatures and ML-KEM ciphertexts that were made once and are kept.

What the library randomises is made once, kept in recorded.json and
checked on every use; all else in the vectors is rebuilt from seeds.
"""

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from tests.reference import exchange
from tests.reference.primitives import SigningKey, verify

PATH: Final = Path(__file__).parent.parent / "vectors" / "recorded.json"


def seed(name: str) -> bytes:
    """A 32-byte value that anybody can make again: SHA-256 of a fixed text and the name."""
    return sha256(b"parley test vector: " + name.encode()).digest()


class Records:
    """The kept values by name; only those asked for in this run are saved again."""

    def __init__(self) -> None:
        stored = json.loads(PATH.read_text()) if PATH.exists() else {"vectors": []}
        self._old: dict[str, list[str]] = {v["name"]: v["values"] for v in stored["vectors"]}
        self._used: dict[str, list[str]] = {}

    def keep(self, name: str, fresh: list[bytes] | None) -> list[bytes] | None:
        """Return the recorded values of `name`, or `fresh` if it is given; None if there are no
        values.
        """
        if name not in self._used and fresh is None and name not in self._old:
            return None
        if name not in self._used:
            stored = [value.hex() for value in fresh] if fresh is not None else self._old[name]
            self._used[name] = stored
        return [bytes.fromhex(value) for value in self._used[name]]

    def document(self) -> dict[str, object]:
        """What recorded.json has to hold after this run."""
        return {
            "about": "Values that the library randomises, made once: ML-DSA signatures, "
            "ML-KEM ciphertexts with their secrets. build.py reads them; tests need not.",
            "section": "4, 5",
            "vectors": [
                {"name": name, "values": values} for name, values in sorted(self._used.items())
            ],
        }


RECORDS: Final = Records()


@dataclass(frozen=True)
class RecordedKey:
    """A signing key whose ML-DSA signatures are kept."""

    key: SigningKey

    def sign(self, message: bytes) -> bytes:
        """The kept signature over `message`, verified, or a new one."""
        if self.key.algorithm != "ml-dsa-65":
            return self.key.sign(message)
        name = "ml-dsa-65 " + sha256(self.key.public + message).hexdigest()
        kept = RECORDS.keep(name, None) or RECORDS.keep(name, [self.key.sign(message)]) or []
        verify("ml-dsa-65", self.key.public, message, kept[0])
        return kept[0]


def recorded_answer(offer: exchange.Offer, scalar: bytes) -> tuple[bytes, bytes]:
    """exchange.answer with a kept ML-KEM ciphertext."""
    if offer.kex == "x25519":
        return exchange.answer(offer.kex, offer.share, scalar)
    name = "x25519-mlkem768 " + sha256(offer.share + scalar).hexdigest()
    kept = RECORDS.keep(name, None)
    if kept is None:
        share, secret = exchange.answer(offer.kex, offer.share, scalar)
        kept = RECORDS.keep(name, [share, secret]) or []
    if offer.complete(kept[0]) != kept[1]:
        raise ValueError(f"recorded.json does not fit: {name}")
    return kept[0], kept[1]
