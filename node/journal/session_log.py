"""One connection's part of a journal: the observer that converts its core's reports to records.

`event` is on the hot path and only packs, sums and appends. A secret is encrypted to the auditors
when it is reported, and not stored (docs/journal.md).
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final
from zlib import crc32

from parley._crypto.auditor import AuditorKey
from parley._crypto.ciphers import XCHACHA20_POLY1305
from parley._crypto.hashing import label
from parley._crypto.key_schedule import (
    chain_bind,
    chain_rekey,
    chain_start_initiator,
    chain_start_responder,
    rekey_root,
    rekey_secrets,
)
from parley._crypto.randomness import random_bytes
from parley._crypto.record_protection import HashChain
from parley._lbm import keys as cells
from parley._lbm.codec import encode
from parley._lbm.errors import LbmDecodeError
from parley._node.journal import keys
from parley._node.journal.record_log import RecordLog
from parley._node.journal.record_types import (
    Checkpoint,
    DirectionCheckpoint,
    Generation,
    KeyUpdate,
    Secret,
    SessionEnd,
    SessionFacts,
    SessionParted,
    SessionResumed,
    SessionStart,
)
from parley._node.journal.segment_writer import RecordBuffer
from parley._node.protocol import event_types
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.handshake import Agreed, expect
from parley._node.protocol.observer import Checkpoint as AskState
from parley._node.protocol.observer import DirectionState

# Kind, time, session, direction: the fields between the frame and an event's bytes.
_pack_event = Struct(">BQIB").pack
_pack_frame = Struct(">II").pack
_FRAME, _HEAD = 8, 22  # The sizes of the frame, and of everything before an event's bytes.
# For larger events, a second item in the list costs less than copying the event.
_LARGE: Final = 1024
_LABEL_NONCE: Final = XCHACHA20_POLY1305.nonce_size
# The other node chooses labels, and each checkpoint repeats them. The limits prevent a checkpoint
# that is longer than a record, or than readers accept.
LONGEST_LABEL: Final = 1_024  # Bytes.
MOST_LABELS: Final = 4_096
# A peer that disconnects repeatedly creates many records, so they are kept short.
LONGEST_REASON: Final = 256  # Characters.


class _DirectionLog:
    """The state of one direction. `place` is the place of its last event."""

    __slots__ = ("chain", "generation", "place", "updates")

    def __init__(self, chain: bytes) -> None:
        self.chain = chain
        self.place = 0
        self.generation = 0
        self.updates = 0

    def state(self, reported: DirectionState) -> DirectionCheckpoint:
        return DirectionCheckpoint(
            reported.chain,
            self.place,
            reported.epoch,
            self.generation,
            self.updates,
            reported.unsealed,
            reported.counters,
        )


class SessionLog:
    """The observer of one connection, which becomes a session when the handshake is complete.

    `local_keys` is this node's identity as in cell 14. `address` is the address of the other node.
    """

    __slots__ = (
        "_address",
        "_ask",
        "_auditors",
        "_buffer",
        "_clock",
        "_facts",
        "_generations",
        "_label_key",
        "_labels",
        "_local_keys",
        "_log",
        "_number",
        "_received",
        "_rekey",
        "_sent",
        "_started",
        "_suite",
        "_th1",
        "_th2",
    )

    def __init__(
        self, log: RecordLog, auditors: Sequence[AuditorKey], local_keys: list[Any], address: str
    ) -> None:
        self._log = log
        self._buffer: RecordBuffer = log.buffer
        self._clock: Callable[[], int] = log.clock
        self._auditors = auditors
        self._local_keys = local_keys
        self._address = address
        self._rekey = b""

    def session_started(self, agreed: Agreed, initiator: bool, checkpoint: AskState) -> None:
        """Record the session's start and the handshake's secret."""
        suite = self._suite = expect(agreed.suite)
        hash = suite.hash_algorithm
        self._ask = checkpoint
        self._facts = SessionFacts(
            expect(agreed.session_id),
            initiator,
            self._local_keys,
            expect(agreed.identity).cells(),
            agreed.local_role,
            agreed.remote_role,
            self._address,
            (suite.kex, suite.signing, suite.hash, suite.cipher, suite.sealing),
            expect(agreed.commit),
            agreed.limits.seal_events,
            agreed.limits.seal_delay_ms,
        )
        self._th1 = hash.digest(agreed.t1)
        self._th2 = hash.digest(agreed.t1 + agreed.responder_proof + agreed.initiator_proof)
        self._rekey = expect(agreed.rekey)
        context = self._facts.session_id
        self._label_key = label(hash, expect(agreed.exporter), "journal labels", context, 32)
        # The labels of streams, and how many of their directions are open.
        self._labels: dict[int, tuple[str, int]] = {}
        self._number = self._log.enter(self)
        # The core does not report its chains before its first event.
        chains = _first_chains(agreed, self._th1, self._th2)
        self._sent, self._received = (
            _DirectionLog(chain) for chain in chains[:: 1 if initiator else -1]
        )
        generation = Generation(0, self._boxes(expect(agreed.hs)))
        self._generations = {0: generation}
        start = SessionStart(
            self._number, self._facts, agreed.t1, agreed.responder_proof, agreed.initiator_proof
        )
        self._started = self._log.record(keys.SESSION_START, start.encode())
        self._log.record(keys.SECRET, Secret(self._number, 0, generation.boxes).encode())

    def event(self, sent: bool, wire: bytes, chain: bytes) -> None:
        direction = self._sent if sent else self._received
        direction.chain = chain
        direction.place += 1
        record = _pack_event(keys.EVENT, self._clock(), self._number, sent)
        size = _HEAD + len(wire)
        buffer = self._buffer
        if size < _LARGE:
            record += wire
            buffer.append(_pack_frame(size - _FRAME, crc32(record)) + record)
        else:
            buffer.append(_pack_frame(size - _FRAME, crc32(wire, crc32(record))) + record)
            buffer.append(wire)
            buffer.parts += 1
        buffer.appended = appended = buffer.appended + size
        if appended >= buffer.mark:
            buffer.on_mark_reached()
        if buffer.idle:
            buffer.wake()

    def epoch_began(self, sent: bool, epoch: int, secret: bytes, rekey: int) -> None:
        """Record a key update. The epoch's secret is derived from its generation's secret."""
        direction = self._sent if sent else self._received
        if not epoch:
            return
        generation = None
        if rekey:
            generation = self._generations[rekey]
            direction.generation, direction.updates = rekey, 0
            commit = expect(generation.commit)
            direction.chain = chain_rekey(self._suite.hash_algorithm, direction.chain, commit)
            self._drop_generations()
        else:
            direction.updates += 1
        body = KeyUpdate(self._number, int(sent), epoch, generation).encode()
        self._log.record(keys.KEY_UPDATE, body)

    def stream_opened(self, stream: int, payload: bytes | memoryview) -> None:
        """Store the label for checkpoints, unless it is too long or there are too many."""
        try:
            text = event_types.OPEN.read(bytes(payload))[cells.LABEL]
        except LbmDecodeError:
            return  # A malformed label, after which the connection will end.
        if len(self._labels) < MOST_LABELS and len(text.encode()) <= LONGEST_LABEL:
            self._labels[stream] = text, 2

    def direction_ended(self, stream: int) -> None:
        """Remove the label when both directions have ended."""
        text, living = self._labels.pop(stream, ("", 0))
        if living > 1:
            self._labels[stream] = text, living - 1

    def rekeyed(
        self, number: int, shared_secret: bytes, after_offer: bytes, after_answer: bytes
    ) -> None:
        """Record the root secret of a rekey, from which everything else is derived."""
        hash = self._suite.hash_algorithm
        root = rekey_root(hash, self._rekey, shared_secret)
        secrets = rekey_secrets(hash, root, after_offer, after_answer)
        self._rekey = secrets.rekey
        generation = Generation(
            number, self._boxes(root), after_offer, after_answer, secrets.commit
        )
        self._generations[number] = generation
        self._log.record(keys.SECRET, Secret(self._number, number, generation.boxes).encode())

    def session_suspended(self, reason: str) -> None:
        body = SessionParted(self._number, reason[:LONGEST_REASON]).encode()
        self._log.record(keys.PARTED, body)

    def session_resumed(self, number: int) -> None:
        self._log.record(keys.RESUMED, SessionResumed(self._number, number).encode())

    def session_ended(self, code: int, text: str, remote: bool) -> None:
        self._log.leave(self._number)
        self._rekey = self._label_key = b""
        directions = self._received, self._sent
        body = SessionEnd(
            self._number,
            code,
            remote,
            text,
            (directions[0].chain, directions[1].chain),
            (directions[0].place, directions[1].place),
        ).encode()
        self._log.record(keys.SESSION_END, body)

    def lost(self) -> None:
        """End the session, because the journal ends."""
        self.session_ended(CloseCode.CONNECTION_LOST, "", False)

    def checkpoint(self) -> bytes:
        """Encode the state of the session between two events."""
        sent, received = self._ask()
        checkpoint = Checkpoint(
            self._number,
            self._facts,
            self._th1,
            self._th2,
            self._started,
            self._received.state(received),
            self._sent.state(sent),
            tuple(self._generations.values()),
            self._sealed_labels(),
        )
        return checkpoint.encode()

    def _boxes(self, secret: bytes) -> tuple[tuple[bytes, bytes], ...]:
        return tuple((bytes(auditor), auditor.seal(secret)) for auditor in self._auditors)

    def _drop_generations(self) -> None:
        """Keep the handshake's generation, and the generations since the older direction's."""
        oldest = min(self._sent.generation, self._received.generation)
        for number in [number for number in self._generations if 0 < number < oldest]:
            del self._generations[number]

    def _sealed_labels(self) -> bytes | None:
        if not self._labels:
            return None
        labels = [[stream, text] for stream, (text, _) in self._labels.items()]
        nonce = random_bytes(_LABEL_NONCE)
        key = XCHACHA20_POLY1305.new(self._label_key)
        data = encode({keys.LABEL_LIST: labels})
        return nonce + key.encrypt(nonce, data, self._facts.session_id)

    def __repr__(self) -> str:
        return f"<SessionLog of {self._address}>"


def _first_chains(agreed: Agreed, th1: bytes, th2: bytes) -> tuple[bytes, bytes]:
    """Return the chain values before the first event, for the initiator and the responder."""
    suite, commit = expect(agreed.suite), expect(agreed.commit)
    hash = suite.hash_algorithm
    blob = (4 if suite.sealing == "each" else 21) + suite.signing_algorithm.signature_size
    covered = hash.digest(agreed.t1 + agreed.responder_proof)
    values = []
    for start, proof in (
        (chain_start_initiator(hash, covered, commit), agreed.initiator_proof),
        (chain_start_responder(hash, th1, commit), agreed.responder_proof),
    ):
        chain = HashChain(hash, start)
        values.append(chain_bind(hash, chain.advance(proof[:4], proof[blob:]), th2))
    return values[0], values[1]
