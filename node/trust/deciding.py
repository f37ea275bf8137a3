"""Whether a peer that proved who it is is trusted: a policy or an accept hook decides, and the
core is told.

A decision that may take time runs in a task of its own (a policy that reads files, in a thread),
which ends with the connection. Until then nothing is read from the peer, and the deadline of the
handshake goes on.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from anyio import to_thread

from node.errors import NotTrustedError, ParleyError
from node.protocol.reports import PeerIdentified
from node.protocol.states import State
from node.remote.live import LiveConnection
from node.transport.loop import Runner
from node.trust.accept_hook import Candidate, Decider, Hook
from node.trust.policies import TrustPolicy

T = TypeVar("T", Hook, TrustPolicy)


class Deciding:
    """The decision about one peer; `dialled` is the name under which it was."""

    __slots__ = ("_dialled", "_live", "_runner", "_trust")

    def __init__(self, live: LiveConnection, trust: Decider, dialled: str | None) -> None:
        self._live = live
        self._trust = trust
        self._dialled = dialled
        self._runner: Runner | None = None

    def decide(self, identified: PeerIdentified) -> None:
        """Accept or refuse the peer, now or as soon as there is an answer."""
        trust, spawn = self._trust, self._live.backend.spawn
        if isinstance(trust, Hook):
            self._runner = spawn(self._later, self._by_hook, trust, identified)
        elif trust.reads_files:
            self._runner = spawn(self._later, self._in_thread, trust, identified)
        else:
            self._decided(self._refusal(trust, identified))

    def stop(self) -> None:
        """The connection is over: nobody waits for an answer any more."""
        if self._runner is not None:
            self._runner.cancel()
            self._runner = None

    async def _later(
        self,
        ask: Callable[[T, PeerIdentified], Awaitable[str | None]],
        trust: T,
        identified: PeerIdentified,
    ) -> None:
        refusal: str | None = "the decision was cancelled"
        try:
            refusal = await ask(trust, identified)
        finally:
            # Also when the hook let a cancellation of its own out.
            self._runner = None
            if self._live.core.state is State.DECIDING:
                self._decided(refusal)
                self._live.driver.settle()

    async def _by_hook(self, hook: Hook, identified: PeerIdentified) -> str | None:
        candidate = Candidate(
            identified.identity.node_id,
            identified.role,
            identified.info,
            address=self._live.name,
            dialled=self._live.core.initiator,
        )
        return await hook.refusal(candidate, self._live.config.accept_timeout)

    async def _in_thread(self, trust: TrustPolicy, identified: PeerIdentified) -> str | None:
        return await to_thread.run_sync(self._refusal, trust, identified, abandon_on_cancel=True)

    def _refusal(self, trust: TrustPolicy, identified: PeerIdentified) -> str | None:
        """Why the peer is not trusted; None if it is."""
        try:
            trust.check(identified.identity, self._dialled)
        except NotTrustedError as error:
            self._live.refused = error
            return error.text
        except ParleyError as error:
            return str(error)
        return None

    def _decided(self, refusal: str | None) -> None:
        core, now = self._live.core, self._live.backend.now()
        if refusal is None:
            core.accept_peer(now)
        else:
            core.refuse_peer(refusal, now)
