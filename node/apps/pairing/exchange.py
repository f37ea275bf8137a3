"""The exchange with which two nodes authenticate each other by a short code (docs/protocol.md
section 21).

`CodeListener` waits for it and `take_code` starts it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import anyio

from parley._crypto.errors import KeyExchangeError
from parley._crypto.identity import NodeId
from parley._crypto.spake2 import CONFIRMATION_SIZE, SHARE_SIZE, Confirmations, Spake2
from parley._node.apps.pairing.code import (
    SECONDS,
    SLOT_SIZE,
    Code,
    CodeGoneError,
    CodeReset,
    ExchangeRefused,
    WrongCodeError,
)
from parley._node.errors import NotTrustedError, StreamResetError
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.protocol.handshake import expect
from parley._node.protocol.rate_limit import Rate
from parley._node.remote.remote import Remote
from parley._node.remote.stream import Stream
from parley._node.trust.admission import PerAddressLimiter

FAILED_TRIES: Final = 3  # after which a code becomes invalid
AT_A_TIME: Final = 4  # concurrent exchanges
OF_AN_ADDRESS: Final = Rate(8, 8.0)  # started exchanges

OPENING_SIZE: Final = SLOT_SIZE + SHARE_SIZE


class CodeAttempts:
    """The attempts of peers to use one code, without I/O: few may fail, and only one can succeed.

    `now` is the time in seconds of a monotonic clock; `who` identifies a connection.
    """

    def __init__(self, code: Code, node_id: NodeId, now: float) -> None:
        self.code = code
        self.failed = 0
        self.taken = False
        self._node_id = node_id
        self._until = now + SECONDS
        self.expected: dict[object, Confirmations] = {}
        self._limiter = PerAddressLimiter(OF_AN_ADDRESS)

    @property
    def given_up(self) -> bool:
        """Whether the code is invalid because too many attempts have failed."""
        return self.failed >= FAILED_TRIES

    def begin(
        self,
        who: object,
        address: str,
        now: float,
        opening: bytes,
        taker: NodeId,
        context: bytes,
        *,
        private: bytes | None = None,
    ) -> bytes:
        """Return message 2, the answer to message 1.

        `context` is the context of the session; `private` is set by test vectors.

        Raises:
            ExchangeRefused: the exchange ends, with this reason.
        """
        self._require_good(now)
        if int.from_bytes(opening[:SLOT_SIZE]) != self.code.slot:
            raise ExchangeRefused(CodeReset.GONE, "there is no such code here")
        busy = who in self.expected or len(self.expected) >= AT_A_TIME
        if busy or not self._limiter.take(address, now):
            raise ExchangeRefused(CodeReset.BUSY, "too many tries at a time")
        ours = Spake2(self.code.password, first=False, private=private)
        try:
            expected = ours.finish(opening[SLOT_SIZE:], taker, self._node_id, context)
        except KeyExchangeError as error:
            raise ExchangeRefused(CodeReset.MALFORMED, "that is not a share") from error
        self.expected[who] = expected
        return ours.share

    def confirm(self, who: object, now: float, confirmation: bytes) -> bytes:
        """Return message 4, the answer to message 3. The code has then been used.

        Raises:
            ExchangeRefused: the exchange ends, with this reason. A wrong confirmation counts as a
                failed attempt.
        """
        expected = self.expected.pop(who)
        self._require_good(now)
        if not expected.check(confirmation):
            self.failed += 1
            raise ExchangeRefused(CodeReset.WRONG, "that is not the code")
        self.taken = True
        return expected.ours

    def leave(self, who: object) -> None:
        """Forget the exchange on this connection."""
        self.expected.pop(who, None)

    def _require_good(self, now: float) -> None:
        if self.taken or self.given_up or now >= self._until:
            raise ExchangeRefused(CodeReset.GONE, "the code is not good any more")


LABEL: Final = "parley.code"
MESSAGE_TIMEOUT: Final = 10.0  # seconds to wait for each message


class CodeListener:
    """Waits on a node for the peer that has `code`.

    The node accepts unknown peers meanwhile, so it should offer nothing else. `on_failed` is called
    with the node ID of each peer that used a wrong code.

    Example:

        from parley.codes import Code, CodeListener, draw_slot

        listener = CodeListener(node, Code.draw(draw_slot()))
    """

    def __init__(
        self, node: Node, code: Code, on_failed: Callable[[str], object] = lambda peer: None
    ) -> None:
        """Register the stream handler.

        Raises:
            ParleyError: the node already has one.
        """
        self.code = code
        self._node = node
        self.on_failed = on_failed
        self.giving = CodeAttempts(code, node.node_id, node.backend.now())
        self.trying: dict[Remote, anyio.CancelScope] = {}
        self._over = anyio.Event()
        self._taker: Peer | None = None
        node.on_stream(LABEL)(self._serve)

    async def taker(self, seconds: float = SECONDS) -> Peer:
        """Wait for the peer that has the code, and return it after both sides are authenticated.

        Raises:
            WrongCodeError: too many peers used a wrong code.
            CodeGoneError: no peer came in `seconds`, or the peer disconnected at the end of the
                exchange.
        """
        with anyio.move_on_after(seconds):
            await self._over.wait()
        if self._taker is not None:
            return self._taker
        if self.giving.given_up:
            raise WrongCodeError(
                f"the code is no longer valid after {self.giving.failed} tries with a wrong one; "
                "make another code"
            )
        if self.giving.taken:
            raise CodeGoneError("the receiver used the code and disconnected; make another code")
        raise CodeGoneError(f"no receiver used the code within {seconds:g} s; make another code")

    async def _serve(self, stream: Stream) -> None:
        peer = stream.peer
        if peer in self.trying:
            stream.reset(CodeReset.BUSY, "one try at a time")
            return
        try:
            with anyio.CancelScope() as self.trying[peer]:
                await self._tried(stream, peer)
                return
            raise ExchangeRefused(CodeReset.GONE, "the code is not good any more")
        except ExchangeRefused as refused:
            stream.reset(refused.code, refused.text)
            if refused.code == CodeReset.WRONG:
                self.on_failed(str(peer.node_id))
        except NotTrustedError as error:
            stream.reset(CodeReset.MALFORMED, error.text)
        finally:
            self.giving.leave(peer)
            del self.trying[peer]
            if self.giving.given_up:
                self._end_others(peer)
                self._over.set()

    async def _tried(self, stream: Stream, peer: Remote) -> None:
        assert isinstance(peer, Peer)  # only native connections have streams
        taker, context = _session(peer, self.code)
        now = self._node.backend.now
        opening = await exchange_message(stream, b"", OPENING_SIZE)
        share = self.giving.begin(peer, peer.name, now(), opening, taker, context)
        confirmation = await exchange_message(stream, share, CONFIRMATION_SIZE)
        ours = self.giving.confirm(peer, now(), confirmation)
        self._end_others(peer)
        try:
            with _in_time():
                await stream.send(ours)
                await stream.send_eof()
                # At its end, the peer has verified the confirmation and is ready.
                await _at_end(stream)
            self._taker = peer
        finally:
            self._over.set()  # the code has been used, whatever happened afterwards

    def _end_others(self, peer: Remote) -> None:
        """Cancel all other exchanges, because the code is no longer valid."""
        for other, scope in self.trying.items():
            if other is not peer:
                scope.cancel()


async def _at_end(stream: Stream) -> None:
    with suppress(anyio.EndOfStream):
        await stream.receive(1)
        raise ExchangeRefused(CodeReset.MALFORMED, "nothing more was to come")


async def take_code(
    node: Node, peer: Peer, code: Code, ready: Callable[[], object] = lambda: None
) -> NodeId:
    """Prove to a connected peer that `node` has its code, and return the peer's verified node ID.

    `ready` is called just before the exchange completes; after that, the peer may send requests.

    Raises:
        WrongCodeError: the peer has another code, or is not the node that issued it.
        CodeGoneError: the peer no longer waits for this code, is busy, or aborted the exchange.
        NotTrustedError: the connection is not encrypted.
        PeerClosedError: the connection has ended.
    """
    giver, context = _session(peer, code)
    stream = peer.open_stream(LABEL)
    ours = Spake2(code.password, first=True)
    try:
        opening = code.slot.to_bytes(SLOT_SIZE) + ours.share
        share = await exchange_message(stream, opening, SHARE_SIZE)
        expected = ours.finish(share, node.node_id, giver, context)
        if not expected.check(await exchange_message(stream, expected.ours, CONFIRMATION_SIZE)):
            raise ExchangeRefused(CodeReset.WRONG, "that is not the code")
        ready()
        await stream.send_eof()
    except ExchangeRefused as refused:
        stream.reset(refused.code, refused.text)
        raise _outcome(refused.code, refused.text) from refused
    except KeyExchangeError as error:
        stream.reset(CodeReset.MALFORMED, "that is not a share")
        raise _outcome(CodeReset.WRONG, "") from error
    except StreamResetError as error:
        raise _outcome(error.code, error.text) from error
    except BaseException:
        stream.reset()
        raise
    return giver


def _outcome(code: int, text: str) -> NotTrustedError | CodeGoneError:
    if code == CodeReset.WRONG:
        return WrongCodeError("the other side has another code; check it, or make a new one")
    if code == CodeReset.BUSY:
        return CodeGoneError("the other side is busy; try the same code again")
    if code == CodeReset.GONE:
        return CodeGoneError("no sender waits for this code: it was used or has expired")
    return CodeGoneError(f"the other side aborted the exchange ({text or code})")


def _session(peer: Peer, code: Code) -> tuple[NodeId, bytes]:
    """Return the peer's node ID and the context that binds a confirmation to this session."""
    agreed = peer.live.agreed
    if agreed is None or agreed.suite is None or peer.node_id is None:
        raise NotTrustedError(f"cannot use a code with {peer}: the connection is not encrypted")
    hash = agreed.suite.hash_algorithm
    context = code.context(hash, expect(agreed.exporter), expect(agreed.session_id))
    return peer.node_id, context


async def exchange_message(stream: Stream, message: bytes, size: int) -> bytes:
    """Send a message and return the next message, of `size` bytes."""
    data = b""
    with _in_time():
        await stream.send(message)
        while len(data) < size:
            try:
                data += await stream.receive(size - len(data))
            except anyio.EndOfStream:
                raise ExchangeRefused(
                    CodeReset.MALFORMED, f"a message of {size} bytes ended after {len(data)}"
                ) from None
    return data


@contextmanager
def _in_time() -> Iterator[None]:
    """Limit the time for sending a message and receiving the next."""
    try:
        with anyio.fail_after(MESSAGE_TIMEOUT):
            yield
    except TimeoutError:
        raise ExchangeRefused(
            CodeReset.MALFORMED, f"no message came in {MESSAGE_TIMEOUT:g} s"
        ) from None
