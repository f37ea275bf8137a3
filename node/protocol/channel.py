"""Encrypts the outgoing events of a connection into frames and decrypts incoming ones.

`SecureChannel` covers both directions of an encrypted connection. It adds seals, key updates and
rekeys when they are due (docs/protocol.md section 6). Events of category 1 are encrypted
immediately, so that their chain values and epochs are known. `PlainChannel` is the counterpart for
unencrypted connections.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from parley._crypto.errors import KeyExchangeError
from parley._crypto.key_schedule import chain_rekey, next_secret
from parley._lbm import keys
from parley._lbm.codec import encode
from parley._node.protocol.codes import (
    CLOSE,
    CONNECTION,
    KEY_UPDATE,
    OPEN,
    REKEY_ANSWER,
    REKEY_OFFER,
    SEAL,
    STREAM,
    CloseCode,
)
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.errors import (
    LimitReachedError,
    RemoteProtocolError,
    overloaded,
    violation,
)
from parley._node.protocol.event import NO_PAYLOAD, Event, parse_raw, serialise_raw
from parley._node.protocol.frames import frame
from parley._node.protocol.handshake import Agreed, expect
from parley._node.protocol.limits import (
    FRAME_HEADER_SIZE,
    IDLE_EVENTS,
    OWN_KEY_UPDATES,
    REKEY_TIMEOUT,
    SEAL_GRACE,
)
from parley._node.protocol.observer import DirectionState, Observer
from parley._node.protocol.rate_limit import TokenBucket
from parley._node.protocol.record_layer import ReaderCheckpoint, RecordReader, RecordWriter
from parley._node.protocol.rekey import Phase, RekeyState
from parley._node.protocol.reports import KeysUpdated, Report
from parley._node.protocol.send_queue import OutgoingEvent

NEVER: Final = float("inf")
_OVERSLEPT: Final = 1.0  # seconds; if our timer fires later than this, this process was suspended
# An automatic KeyUpdate must not follow these: their position in the chain is fixed, or they are
# last.
_NEVER_FOLLOWED: Final = frozenset({KEY_UPDATE, REKEY_OFFER, REKEY_ANSWER, CLOSE})


class SecureChannel:
    """Both directions of an encrypted connection after its handshake.

    `used` is set by each event on a stream other than 0, because an unused connection needs no
    rekey. Call `handle_deadline` at `seal_due`, `keys_due` and `patience_ends`. With
    `seals_flushes` (`seal_delay_ms` is 0), every flush ends with `flush_seal`. While the first
    event over a new transport has not been decrypted, `trial` is the state to restore if that
    fails.
    """

    def __init__(
        self,
        config: CoreConfig,
        agreed: Agreed,
        sender: RecordWriter,
        receiver: RecordReader,
        initiator: bool,
        reports: list[Report],
        observer: Observer | None,
        now: float,
    ) -> None:
        suite = expect(agreed.suite)
        self._config = config
        self.sender = sender
        self.receiver = receiver
        self._reports = reports
        self._observer = observer
        self.rekeying = RekeyState(suite, expect(agreed.rekey), initiator, config.rekey_allowance)
        self._idle_seals = TokenBucket(IDLE_EVENTS)
        self._seal_events = agreed.limits.seal_events
        self._seal_delay = agreed.limits.seal_delay_ms / 1000
        self.seal_due = NEVER
        # How long to wait for a seal. The wait is suspended while received bytes are unread.
        self._patience = self._seal_delay + SEAL_GRACE
        self._patience_left = self._patience
        self.patience_ends = NEVER
        self._epoch_began = now
        self._last_rekey = now
        # Usually the initiator rekeys; the responder does so only if the initiator is late.
        self._rekey_interval = config.rekey_interval * (1.0 if initiator else 1.1)
        self.used = False
        self.seals_flushes = not agreed.limits.seal_delay_ms
        # Bound once, because it is called for each event.
        self.decrypt = receiver.decrypt
        self.trial: ReaderCheckpoint | None = None
        self.tapped = observer is not None  # otherwise only if the next event must be checked
        self._plan()
        if observer is not None:
            observer.epoch_began(True, sender.epoch, sender.secret, 0)
            observer.epoch_began(False, receiver.epoch, receiver.secret, 0)

    # Outgoing events.

    def encrypt(self, events: Iterable[OutgoingEvent], now: float) -> list[bytes]:
        """Encrypt each event into a frame, with a seal if one is due; add the KeyUpdates that are
        due.
        """
        sender, config, frames = self.sender, self._config, list[bytes]()
        for event in events:
            stream, category, subcategory = event.stream, event.category, event.subcategory
            unsealed, payload = sender.unsealed, event.payload
            seal = event.seal or unsealed + 1 >= self._seal_events or now >= self.seal_due
            framed = sender.encrypt(stream, event.async_id, category, subcategory, payload, seal)
            frames.append(framed)
            if seal:
                self.seal_due = NEVER
            elif not unsealed and not sender.each and self._seal_delay:
                self.seal_due = now + self._seal_delay
            if stream:
                self.used = True
            if self._observer is not None:
                self._observer.event(True, framed[FRAME_HEADER_SIZE:], sender.chain)
                if category == STREAM and subcategory == OPEN:
                    self._observer.stream_opened(stream, bytes(payload))
            if (
                sender.events_sent >= config.update_after_events
                or sender.bytes_sent >= config.update_after_bytes
            ) and not (category == CONNECTION and subcategory in _NEVER_FOLLOWED):
                frames.append(self._renew(now))
        return frames

    def flush_seal(self, now: float) -> bytes:
        return self._sealed(SEAL, NO_PAYLOAD, now) if self.sender.unsealed else b""

    def update_keys(self, now: float) -> bytes:
        """Send a plain KeyUpdate, which is the last event of the current sending epoch.

        Raises:
            LimitReachedError: the peer would treat one more KeyUpdate as a flood.
        """
        if not self.rekeying.own_updates.take(now):
            wait = f"{OWN_KEY_UPDATES.seconds:g} s"
            reason = f"cannot update the keys of epoch {self.sender.epoch}: too many; wait {wait}"
            raise LimitReachedError(reason)
        return self._update(now)

    def _update(self, now: float) -> bytes:
        sender = self.sender
        framed = self._sealed(KEY_UPDATE, encode({keys.EPOCH: sender.epoch + 1}), now)
        self._switch_sender(next_secret(sender.suite.hash_algorithm, sender.secret), 0, now)
        return framed

    def rekey(self, now: float) -> bytes:
        """Send a RekeyOffer, unless a rekey is in progress.

        Raises:
            LimitReachedError: the peer would treat one more offer as a flood.
        """
        if self.rekeying.phase is not Phase.IDLE:
            return b""
        self._last_rekey = now
        framed = self._sealed(REKEY_OFFER, encode({keys.SHARE: self.rekeying.offer(now)}), now)
        self.rekeying.offer_sent(self.sender.chain)
        self._plan()
        return framed

    # Incoming events.

    def event_decrypted(self, event: Event, data: bytes | memoryview, sealed: bool) -> None:
        """Process an event that `decrypt` returned. Call it if the event is `sealed` or the channel
        `tapped`.
        """
        if self.rekeying.update_due and not (
            event.category == CONNECTION and event.subcategory == KEY_UPDATE
        ):
            between = f"event {event.category}/{event.subcategory} on stream {event.stream}"
            raise violation(f"{between} between a RekeyAnswer and its KeyUpdate")
        if sealed:
            self._patience_left = self._patience
            self.patience_ends = NEVER
        if self._observer is not None:
            wire = data if type(data) is bytes else bytes(data)  # a long event is a memoryview
            self._observer.event(False, wire, self.receiver.chain)
            if event.category == STREAM and event.subcategory == OPEN:
                self._observer.stream_opened(event.stream, event.payload)

    def control(self, subcategory: int, cells: Mapping[int, Any], now: float) -> bytes:
        """Process an event of types 1/8 to 1/11 and return the frames to send in response."""
        try:
            if subcategory == SEAL:
                if not self.receiver.sealed and not self._idle_seals.take(now):
                    raise overloaded(
                        f"more than {IDLE_EVENTS.burst:g} Seals that cover no new event"
                    )
                return b""
            if subcategory == KEY_UPDATE:
                self._key_update(cells, now)
                self.tapped = self._observer is not None
                return b""
            if subcategory == REKEY_OFFER:
                return self._rekey_offer(cells[keys.SHARE], now)
            if subcategory == REKEY_ANSWER:
                self.tapped = True
                return self._rekey_answer(cells[keys.SHARE], now)
        except KeyExchangeError as error:
            raise violation(f"malformed key share: {error}") from error
        raise violation(f"unexpected event 1/{subcategory} after the handshake")

    def forget(self, stream: int, *, sent: bool) -> None:
        """Free the key of one direction of a stream, which has ended."""
        (self.sender if sent else self.receiver).forget(stream)
        if self._observer is not None:
            self._observer.direction_ended(stream)

    def drop_idle_keys(self) -> None:
        self.sender.drop_idle_keys()
        self.receiver.drop_idle_keys()

    # Deadlines.

    def was_read(self, now: float, more: bool) -> None:
        """Restart the wait for a seal. The wait is suspended while received bytes are unread
        (`more`).
        """
        if self.patience_ends != NEVER:
            self._patience_left = self.patience_ends - now
            if self._patience_left < -_OVERSLEPT:
                # This process was suspended when the time ran out, so the seal may have arrived
                # meanwhile: read the waiting bytes first.
                self._patience_left = _OVERSLEPT
        waits = self.receiver.unsealed and not more
        self.patience_ends = now + self._patience_left if waits else NEVER

    def handle_deadline(self, now: float) -> bytes:
        """Return the frames that are due.

        Raises:
            RemoteProtocolError: `seal-violation` if a seal is overdue; `timeout` if the peer didn't
                answer a RekeyOffer, or didn't send the KeyUpdate that completes a rekey.
        """
        if now >= self.patience_ends:
            late = f"no seal within {self._patience:g} s for {self.receiver.unsealed} events"
            raise RemoteProtocolError(CloseCode.SEAL_VIOLATION, late)
        if now >= self.rekeying.deadline:
            late = f"the peer did not continue the rekey within {REKEY_TIMEOUT:g} s"
            raise RemoteProtocolError(CloseCode.TIMEOUT, late)
        framed = b""
        if now >= self._last_rekey + self._rekey_interval:
            self._last_rekey = now
            if self.used and self.rekeying.may_offer(now):
                self.used = False
                framed += self.rekey(now)
        if now >= self._epoch_began + self._config.update_after_seconds:
            self._epoch_began = now
            if self.sender.events_sent:
                framed += self._renew(now)
        if now >= self.seal_due:
            framed += self._sealed(SEAL, NO_PAYLOAD, now)
        self._plan()
        return framed

    def checkpoint(self) -> tuple[DirectionState, DirectionState]:
        """Return the state of the sending and the receiving direction between two events."""
        sent, received = (
            DirectionState(d.chain, d.epoch, d.counters(), d.unsealed)
            for d in (self.sender, self.receiver)
        )
        return sent, received

    # Resumption over another transport.

    def resume(self, now: float) -> None:
        """Continue over a new transport: restart all waits and put the first event on trial."""
        self.seal_due = now + self._seal_delay if self.sender.unsealed else NEVER
        self._patience_left = self._patience
        self.patience_ends = now + self._patience if self.receiver.unsealed else NEVER
        self._epoch_began = self._last_rekey = now
        self.rekeying.resume(now)
        self._plan()
        self.trial = self.receiver.checkpoint()
        self.decrypt = self._decrypt_first

    def transport_lost(self, now: float) -> None:
        """Handle the loss of the transport. If none of its events was decrypted, restore the
        previous state.
        """
        self.rekeying.suspend(now)
        if self.trial is not None:
            self.receiver.restore(self.trial)
            self.trial, self.decrypt = None, self.receiver.decrypt

    def _decrypt_first(
        self, event: bytes | memoryview, *, verify: bool = True
    ) -> tuple[Event, bytes | memoryview | None]:
        """Decrypt the first event over a new transport, which proves that the peer uses it."""
        decrypted = self.receiver.decrypt(event, verify=verify)
        self.trial, self.decrypt = None, self.receiver.decrypt
        return decrypted

    # The steps of key updates and rekeys.

    def _sealed(self, subcategory: int, payload: bytes, now: float) -> bytes:
        event = OutgoingEvent(0, 0, CONNECTION, subcategory, payload, True)
        return b"".join(self.encrypt((event,), now))

    def _plan(self) -> None:
        """Compute `keys_due`. It changes only with the keys, but each flush reads it."""
        self.keys_due = min(
            self._epoch_began + self._config.update_after_seconds,
            self._last_rekey + self._rekey_interval,
            self.rekeying.deadline,
        )

    def _switch_sender(self, secret: bytes, rekey: int, now: float) -> None:
        self.sender.switch(secret)
        self._epoch_began = now
        self._plan()
        self._reports.append(KeysUpdated(True, self.sender.epoch, rekey))
        if self._observer is not None:
            self._observer.epoch_began(True, self.sender.epoch, secret, rekey)

    def _renew(self, now: float) -> bytes:
        """Send a KeyUpdate that is due, unless the local rate limit delays it. After too many plain
        KeyUpdates, rekey instead.
        """
        rekeying = self.rekeying
        if rekeying.own_updates.take(now):
            return self._update(now)
        return b"" if rekeying.own_updates.left or not rekeying.may_offer(now) else self.rekey(now)

    def _key_update(self, cells: Mapping[int, Any], now: float) -> None:
        receiver = self.receiver
        if cells[keys.EPOCH] != receiver.epoch + 1:
            reason = f"invalid KeyUpdate: epoch {cells[keys.EPOCH]} follows epoch {receiver.epoch}"
            raise violation(reason)
        number = cells.get(keys.REKEY_NUMBER)
        hash = receiver.suite.hash_algorithm
        if number is None and self.rekeying.update_due:
            raise violation(
                f"a plain KeyUpdate instead of the KeyUpdate of rekey {self.rekeying.number}"
            )
        if number is None:
            if not self.rekeying.updates.take(now):
                raise overloaded(f"too many KeyUpdates: one more in epoch {receiver.epoch}")
            receiver.switch(next_secret(hash, receiver.secret))
        else:
            secret, commit = self.rekeying.take_receiving(number)
            receiver.switch(secret)
            receiver.chain = chain_rekey(hash, receiver.chain, commit)
        self._reports.append(KeysUpdated(False, receiver.epoch, number or 0))
        if self._observer is not None:
            self._observer.epoch_began(False, receiver.epoch, receiver.secret, number or 0)

    def _rekey_offer(self, share: bytes, now: float) -> bytes:
        rekeying = self.rekeying
        if not rekeying.offer_received(now):
            return b""
        after_offer = self.receiver.chain
        answer, shared_secret = rekeying.answer(share)
        framed = self._sealed(REKEY_ANSWER, encode({keys.SHARE: answer}), now)
        sender = self.sender
        rekeying.derive(shared_secret, after_offer, sender.chain, now)
        return framed + self._rekey_update(shared_secret, after_offer, sender.chain, now)

    def _rekey_answer(self, share: bytes, now: float) -> bytes:
        after_offer, shared_secret = self.rekeying.answer_received(share, now)
        after_answer = self.receiver.chain
        self.rekeying.derive(shared_secret, after_offer, after_answer, now)
        return self._rekey_update(shared_secret, after_offer, after_answer, now)

    def _rekey_update(
        self, shared_secret: bytes, after_offer: bytes, after_answer: bytes, now: float
    ) -> bytes:
        """Send the KeyUpdate of a rekey and switch the sending direction to the new keys."""
        sender, number = self.sender, self.rekeying.number
        self._last_rekey = now
        if self._observer is not None:
            self._observer.rekeyed(number, shared_secret, after_offer, after_answer)
        payload = encode({keys.EPOCH: sender.epoch + 1, keys.REKEY_NUMBER: number})
        framed = self._sealed(KEY_UPDATE, payload, now)
        secret, commit = self.rekeying.take_sending()
        self._switch_sender(secret, number, now)
        sender.chain = chain_rekey(sender.suite.hash_algorithm, sender.chain, commit)
        return framed


class PlainChannel:
    """The channel of an unencrypted connection, without keys, hash chain or seals."""

    def __init__(self) -> None:
        self.used = self.seals_flushes = self.tapped = False
        self.trial = None
        self.seal_due = self.keys_due = self.patience_ends = NEVER

    def encrypt(self, events: Iterable[OutgoingEvent], now: float) -> list[bytes]:
        return [frame(serialise_raw(Event(*event.head, bytes(event.payload)))) for event in events]

    def decrypt(self, data: bytes | memoryview) -> tuple[Event, bytes]:
        """Return the event with an empty seal, which means that it needs none."""
        return parse_raw(data), b""

    def event_decrypted(self, event: Event, data: bytes | memoryview, sealed: bool) -> None: ...

    def control(self, subcategory: int, cells: Mapping[int, Any], now: float) -> bytes:
        """Reject events that only make sense with encryption."""
        raise violation(
            f"event 1/{subcategory} requires encryption, but the connection is unencrypted"
        )

    def flush_seal(self, now: float) -> bytes:
        return b""

    def forget(self, stream: int, *, sent: bool) -> None: ...

    def was_read(self, now: float, more: bool) -> None: ...

    def handle_deadline(self, now: float) -> bytes:
        return b""
