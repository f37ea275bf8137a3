"""The secrets of a session that an auditor can open.

A secret is used only if it matches the commitment that the chain and seals cover, so that a wrong
secret never produces a wrong plaintext.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from parley._crypto.auditor import AuditorPrivateKey
from parley._crypto.ciphers import INVALID_TAG_ERRORS, XChaCha20Poly1305
from parley._crypto.errors import DecryptError
from parley._crypto.hashing import label
from parley._crypto.key_schedule import application_secrets, commitment, next_secret, rekey_secrets
from parley._crypto.record_protection import StreamKey
from parley._crypto.registry import Suite
from parley._lbm.codec import Value, decode
from parley._lbm.errors import LbmDecodeError
from parley._node.journal.keys import LABEL_LIST
from parley._node.journal.record_types import LIMITS, Generation

LABEL_NONCE: Final = 24
_PROOF_AAD: Final = bytes(4) + b"\x01"  # Stream 0, sealed.
_INNER_HEAD: Final = 4  # Async ID and type.
KEPT_EPOCHS: Final = 8
STEP: Final = 1_024  # The number of updates after which a secret is stored as well.
_KEPT_SECRETS: Final = 4_096
# The most epochs of a generation. An honest epoch lasts for at least 4 GiB or an hour.
MOST_UPDATES: Final = 2**16


class BoxOpener:
    """Opens boxes with the auditors' private keys, and remembers the last 4,096 secrets."""

    def __init__(self, auditors: Sequence[AuditorPrivateKey]) -> None:
        self._auditors = {bytes(key.public): key for key in auditors}
        self._opened: dict[bytes, bytes] = {}

    def __bool__(self) -> bool:
        return bool(self._auditors)

    def open(self, generation: Generation) -> bytes | None:
        """Return the secret of a generation, or None if none of its boxes can be opened."""
        for auditor, box in generation.boxes:
            key = self._auditors.get(auditor)
            if key is None:
                continue
            found = self._opened.get(box)
            if found is None:
                try:
                    found = key.open(box)
                except DecryptError:
                    continue
                if len(self._opened) >= _KEPT_SECRETS:
                    del self._opened[next(iter(self._opened))]
                self._opened[box] = found
            return found
        return None


class Keyring:
    """The secrets of one session. `problem` is the reason why the last one was not added."""

    def __init__(
        self,
        boxes: BoxOpener,
        suite: Suite,
        commit: bytes,
        th1: bytes,
        th2: bytes,
        session_id: bytes,
    ) -> None:
        self._boxes = boxes
        self._suite = suite
        self._commit = commit
        self._th1 = th1
        self._th2 = th2
        self._session_id = session_id
        self.epochs: dict[int, tuple[bytes, bytes]] = {}  # Of the initiator, of the responder.
        self.last: dict[tuple[int, bool], tuple[int, bytes]] = {}
        self.steps: dict[tuple[int, bool], list[bytes]] = {}  # After every `STEP` updates.
        self._proofs: tuple[bytes, ...] = ()  # Of the responder, of the initiator.
        self._exporter: bytes | None = None
        self.problem = ""
        self.wrong = False  # Whether the problem is a secret of another session.

    def add(self, generation: Generation) -> bool:
        """Add a generation; return whether its secret was opened and is correct."""
        if generation.number in self.epochs:
            return True
        secret = self._boxes.open(generation)
        hash = self._suite.hash_algorithm
        self.wrong = secret is not None
        if secret is None:
            self.problem = f"no box of generation {generation.number} opens"
        elif len(secret) != hash.size:
            self.problem = f"the secret of generation {generation.number} has a wrong size"
        elif not generation.number:
            if commitment(hash, secret, self._th1) != self._commit:
                self.problem = "the encrypted secret does not match the session's commitment"
                return False
            application = application_secrets(hash, secret, self._th2)
            if application.session_id != self._session_id:
                self.problem = "the session ID does not match the session's secret"
                return False
            self._exporter = application.exporter
            self._proofs = (
                label(hash, secret, "hs responder", self._th1, hash.size),
                label(hash, secret, "hs initiator", self._th1, hash.size),
            )
            self.epochs[0] = application.ap_initiator, application.ap_responder
            return True
        else:
            offer, answer = generation.after_offer or b"", generation.after_answer or b""
            secrets = rekey_secrets(hash, secret, offer, answer)
            if secrets.commit != generation.commit:
                self.problem = (
                    f"the encrypted secret of rekey {generation.number} does not match the rekey"
                )
                return False
            self.epochs[generation.number] = secrets.next_initiator, secrets.next_responder
            return True
        return False

    def open_proof(self, blob: bytes, *, initiator: bool) -> bytes | None:
        """Return the payload of a side's Proof, or None if it doesn't open."""
        if not self._proofs:
            return None
        key = StreamKey(self._suite, self._proofs[initiator], 0)
        try:
            return key.decrypt(blob, _PROOF_AAD)[_INNER_HEAD:]
        except DecryptError:
            return None

    @property
    def is_open(self) -> bool:
        """Whether an auditor's key opened any secret of the session."""
        return bool(self.epochs)

    def has(self, generation: int) -> bool:
        return generation in self.epochs

    def secret(self, generation: int, updates: int, initiator: bool) -> bytes | None:
        """Return an epoch's secret for the `initiator` or the responder, or None if unknown."""
        pair = self.epochs.get(generation)
        if pair is None or updates > MOST_UPDATES:
            return None
        key, first = (generation, initiator), pair[0 if initiator else 1]
        # Usually, this is the epoch after the last requested one.
        done, secret = self.last.get(key, (0, first))
        steps = self.steps.setdefault(key, [first])
        if done > updates:
            # A forged checkpoint must not make us derive all secrets again.
            step = min(updates // STEP, len(steps) - 1)
            done, secret = step * STEP, steps[step]
        for update in range(done + 1, updates + 1):
            secret = next_secret(self._suite.hash_algorithm, secret)
            if update == len(steps) * STEP:
                steps.append(secret)
        self.last[key] = updates, secret
        if len(self.last) > KEPT_EPOCHS:
            oldest = next(iter(self.last))
            del self.last[oldest], self.steps[oldest]
        return secret

    def labels(self, encrypted: bytes | None) -> dict[int, str] | None:
        """Return a checkpoint's labels, empty without a key; None if they don't open or parse."""
        if encrypted is None or self._exporter is None:
            return {}
        key = labels_key(self._suite, self._exporter, self._session_id)
        nonce, blob = encrypted[:LABEL_NONCE], encrypted[LABEL_NONCE:]
        if len(nonce) < LABEL_NONCE:
            return None
        try:
            plain = XChaCha20Poly1305(key).decrypt(nonce, blob, self._session_id)
        except INVALID_TAG_ERRORS:
            return None
        try:
            return _label_map(decode(plain, LIMITS).get(LABEL_LIST))
        except LbmDecodeError:
            return None


def labels_key(suite: Suite, exporter: bytes, session_id: bytes) -> bytes:
    """Return the key of a session's labels (docs/journal.md), 32 bytes."""
    return label(suite.hash_algorithm, exporter, "journal labels", session_id, 32)


def _label_map(value: Value) -> dict[int, str]:
    pairs = value if isinstance(value, list) else []
    return {
        pair[0]: pair[1]
        for pair in pairs
        if isinstance(pair, list) and [type(value) for value in pair] == [int, str]
    }


# How many counters are tried for a stream's next event after a gap in the records.
TRIED_COUNTERS: Final = 64


class EpochKeys:
    """The stream keys of one epoch of a direction. `secret` is None if it is unknown.

    Events must be opened in the order of the chain, because counters ascend. With `guess`, events
    may be missing, and a few counters are tried.
    """

    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        self.secret: bytes | None = None
        self.guess = False
        self.begin({})

    def begin(self, counters: Mapping[int, int]) -> None:
        self._counters = dict(counters)
        self._keys: dict[bytes, StreamKey] = {}

    def keep(self, streams: Mapping[int, int]) -> None:
        """Free the keys of all other streams."""
        names = {stream.to_bytes(4, "big") for stream in streams}
        self._keys = {name: key for name, key in self._keys.items() if name in names}

    def decrypt(self, stream4: bytes, blob: bytes, form: bytes) -> bytes | None:
        """Return the plaintext of an event of a form (1 byte), or None without the right key."""
        if self.secret is None:
            return None
        key = self._keys.get(stream4) or self._stream_key(stream4, self.secret)
        aad = stream4 + form
        try:
            return key.decrypt(blob, aad)
        except DecryptError:
            if not self.guess:
                return None
        first = key.counter
        for counter in range(first + 1, first + TRIED_COUNTERS):
            key.counter = counter
            try:
                return key.decrypt(blob, aad)
            except DecryptError:
                continue
        key.counter = first
        return None

    def _stream_key(self, stream4: bytes, secret: bytes) -> StreamKey:
        stream = int.from_bytes(stream4, "big")
        key = self._keys[stream4] = StreamKey(self._suite, secret, stream)
        key.counter = self._counters.get(stream, 0)
        return key
