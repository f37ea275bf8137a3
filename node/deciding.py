"""Whether a peer that proved who it is is trusted: the policy's word, given to the core.

One rule: a policy that reads files is asked in a thread, since a file may keep one
waiting; until it has answered nothing is read from the peer, and the handshake's
deadline goes on.
"""

from typing import TYPE_CHECKING

from anyio import to_thread

from node.errors import NotTrustedError, ParleyError
from node.protocol.reports import PeerIdentified
from node.protocol.states import State
from node.trust import TrustPolicy

if TYPE_CHECKING:
    from node.peer import Peer


class Deciding:
    """The decision about one peer; `dialled` is the name under which it was."""

    __slots__ = ("_dialled", "_peer", "_trust", "refused")

    def __init__(self, peer: "Peer", trust: TrustPolicy, dialled: str | None) -> None:
        self._peer = peer
        self._trust = trust
        self._dialled = dialled
        self.refused: NotTrustedError | None = None  # the policy's own words, for who dialled

    def decide(self, identified: PeerIdentified) -> None:
        """Accept or refuse the peer, now or as soon as the policy has answered."""
        if self._trust.reads_files:
            self._peer.backend.spawn(self._in_thread, identified)
        else:
            self._decided(self._refusal(identified))

    async def _in_thread(self, identified: PeerIdentified) -> None:
        refusal = await to_thread.run_sync(self._refusal, identified, abandon_on_cancel=True)
        if self._peer.core.state is State.DECIDING:
            self._decided(refusal)
            self._peer.driver.settle()

    def _refusal(self, identified: PeerIdentified) -> str | None:
        """Why the peer is not trusted; None if it is."""
        try:
            self._trust.check(identified.identity, self._dialled)
        except NotTrustedError as error:
            self.refused = error
            return error.text
        except ParleyError as error:
            return str(error)
        return None

    def _decided(self, refusal: str | None) -> None:
        core, now = self._peer.core, self._peer.backend.now()
        if refusal is None:
            core.accept_peer(now)
        else:
            core.refuse_peer(refusal, now)
