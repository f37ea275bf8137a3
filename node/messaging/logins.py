"""Login and Logout on one connection, in both directions: category 5 (docs/protocol.md section 20).

They are sent on stream 1; a Login or Logout with a request ID gets one Answer. `Decide` decides who
may log in.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

from parley._lbm import keys
from parley._lbm.codec import Encodable, encode
from parley._lbm.errors import LbmDecodeError
from parley._node.messaging.call_codec import FinalAnswer
from parley._node.messaging.deadline_queue import clamp_timeout
from parley._node.messaging.incoming_calls import IncomingCalls
from parley._node.messaging.outgoing_calls import OutgoingCall, OutgoingCalls
from parley._node.protocol import event_types as federation_types
from parley._node.protocol.codes import (
    ACCOUNT,
    ACCOUNT_ANSWER,
    LOGIN,
    LOGOUT,
    MAIN_STREAM,
    ResultCode,
)
from parley._node.protocol.connection import Connection
from parley._node.protocol.event import Event
from parley._node.protocol.payload_schema import PayloadSchema

# Decides on a Login with these exports, or on a Logout (None).
Decide = Callable[[Sequence[str] | None], ResultCode]


class OutgoingLogin(OutgoingCall):
    """An outgoing Login or Logout."""

    category: ClassVar[int] = ACCOUNT
    __slots__ = ()


class Logins:
    """The logins of one connection."""

    __slots__ = ("_connection", "_decide", "_incoming", "_outgoing")

    def __init__(
        self,
        connection: Connection,
        outgoing: OutgoingCalls,
        incoming: IncomingCalls,
        decide: Decide,
    ) -> None:
        self._connection = connection
        self._outgoing = outgoing
        self._incoming = incoming
        self._decide = decide

    # Outgoing requests.

    def login(
        self,
        exports: Sequence[str],
        now: float,
        timeout: float | None,
        on_done: Callable[[], None],
    ) -> OutgoingCall:
        """Send a Login; its answer has code 0 if it is accepted. `timeout` is in seconds from
        `now`.

        Raises:
            LocalError: the connection isn't open, the Login is too large, or 65,535 requests are
                waiting.
        """
        cells: dict[int, Encodable] = {keys.EXPORTS: list(exports)} if exports else {}
        return self._ask(LOGIN, encode(cells), now, timeout, on_done)

    def logout(
        self, now: float, timeout: float | None, on_done: Callable[[], None]
    ) -> OutgoingCall:
        """Send a Logout; raises as `login`."""
        return self._ask(LOGOUT, encode({}), now, timeout, on_done)

    # Called by the connection. All return False, because the cost of these events is returned.

    def login_received(self, event: Event, now: float) -> bool:
        """Process a Login.

        Raises:
            RemoteProtocolError: for the reasons that `IncomingCalls.require_free` documents.
        """
        return self._received(event, federation_types.LOGIN)

    def logout_received(self, event: Event, now: float) -> bool:
        """Process a Logout; raises as `login_received`."""
        return self._received(event, federation_types.LOGOUT)

    def answer_received(self, event: Event, now: float) -> bool:
        """Process the Answer to an outgoing Login or Logout."""
        call = self._outgoing.final_received(event)
        if call is not None:
            try:
                code = federation_types.ACCOUNT_ANSWER.read(event.payload)[keys.CODE]
            except LbmDecodeError:
                code = ResultCode.MALFORMED
            call.finish(code, None)
        return False

    def _ask(
        self,
        subcategory: int,
        payload: bytes,
        now: float,
        timeout: float | None,
        on_done: Callable[[], None],
    ) -> OutgoingCall:
        call = OutgoingLogin(on_done)
        return self._outgoing.ask(call, ACCOUNT, subcategory, payload, now, clamp_timeout(timeout))

    def _received(self, event: Event, own: PayloadSchema) -> bool:
        stream, async_id = event.stream, event.async_id
        if stream != MAIN_STREAM or not async_id:
            self._connection.count_dropped()
            return False
        self._incoming.require_free(stream, async_id)
        try:
            cells = own.read(event.payload)
        except LbmDecodeError:
            code = ResultCode.MALFORMED
        else:
            exports = cells.get(keys.EXPORTS, ())
            code = self._decide(exports if own is federation_types.LOGIN else None)
        self._incoming.refuse(stream, async_id, code, encode_account_answer)
        return False


def encode_account_answer(code: int) -> FinalAnswer:
    return ACCOUNT, ACCOUNT_ANSWER, encode({keys.CODE: int(code)})
