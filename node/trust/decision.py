"""Whether a peer that proved who it is is trusted: a policy or an accept hook decides, and the
core is told.

A decision that may take time runs in a task of its own (a policy that reads files, in a thread),
which ends with the connection. Until then nothing is read from the peer, and the deadline of the
handshake goes on. Whoever was let in may be asked about again (`node.trust.revalidation`).
"""

from collections.abc import Callable

from anyio import to_thread

from parley._crypto.identity import PublicIdentity
from parley._node.errors import NotTrustedError, ParleyError
from parley._node.protocol.handshake import expect
from parley._node.protocol.reports import PeerIdentified
from parley._node.protocol.states import State
from parley._node.remote.live_connection import LiveConnection
from parley._node.transport.loop import Runner
from parley._node.trust.policies import Candidate, Decider, Hook

# Raises NotTrustedError, as `TrustPolicy.check` does.
Check = Callable[[PublicIdentity, str | None], None]


class Deciding:
    """The decision about one peer; `dialled` is the name under which it was. `trust` makes it, and
    `identified` is whom the peer has proved to be, once it has."""

    __slots__ = ("_dialled", "_live", "_outdated", "_runner", "identified", "trust")

    def __init__(self, live: LiveConnection, trust: Decider, dialled: str | None) -> None:
        self._live = live
        self._dialled = dialled
        self._runner: Runner | None = None
        self._outdated = False
        self.trust = trust
        self.identified: PeerIdentified | None = None

    def decide(self, identified: PeerIdentified) -> None:
        """Accept or refuse the peer, now or as soon as there is an answer."""
        self.identified = identified
        trust = self.trust
        if isinstance(trust, Hook) or trust.reads_files:
            self._runner = self._live.backend.spawn(self._later)
        else:
            self._decided(self.refusal(trust.check))

    def stop(self) -> None:
        """The connection is over: nobody waits for an answer any more."""
        if self._runner is not None:
            self._runner.cancel()
            self._runner = None

    # Once more, when it was made.

    @property
    def is_made(self) -> bool:
        """Whether there was a decision; a peer that proves no id needs none."""
        return self.identified is not None and self._live.core.state is not State.DECIDING

    def outdate(self) -> None:
        """What it rests on may have changed: one that is under way is made anew."""
        self._outdated = self._live.core.state is State.DECIDING

    def accepted_by(self, trust: Decider) -> None:
        """Have another policy decide, if the peer is one that dialled us."""
        if not self._live.core.initiator:
            self.trust = trust

    def refuse(self, refusal: NotTrustedError) -> None:
        """The peer was let in, and is not trusted any more."""
        self._live.refuse(refusal)

    # What is asked.

    def refusal(self, check: Check) -> NotTrustedError | None:
        """Why a policy does not trust the peer; None if it does. The cause is what kept it from
        deciding, if something did."""
        try:
            check(expect(self.identified).identity, self._dialled)
        except NotTrustedError as error:
            return error
        except ParleyError as error:
            refused = NotTrustedError(str(error))
            refused.__cause__ = error
            return refused
        return None

    async def refusal_of(self, hook: Hook) -> NotTrustedError | None:
        """Why an accept hook does not let the peer in; None if it does."""
        identified = expect(self.identified)
        candidate = Candidate(
            identified.identity.node_id,
            identified.role,
            identified.info,
            address=self._live.name,
            dialled=self._live.core.initiator,
        )
        text = await hook.refusal(candidate, self._live.config.tuning.accept_timeout)
        return None if text is None else NotTrustedError(text)

    # Inside.

    async def _later(self) -> None:
        answer: NotTrustedError | None = NotTrustedError("the decision was cancelled")
        try:
            while True:
                self._outdated = False
                answer = await self._answer(self.trust)
                if not self._outdated:
                    break
        finally:
            # Also when the hook let a cancellation of its own out.
            self._runner = None
            if self._live.core.state is State.DECIDING:
                self._decided(answer)
                self._live.driver.step()

    async def _answer(self, trust: Decider) -> NotTrustedError | None:
        if isinstance(trust, Hook):
            return await self.refusal_of(trust)
        return await to_thread.run_sync(self.refusal, trust.check, abandon_on_cancel=True)

    def _decided(self, answer: NotTrustedError | None) -> None:
        core, now = self._live.core, self._live.backend.now()
        if answer is None:
            core.accept_peer(now)
        else:
            self._live.refused = answer
            core.refuse_peer(answer.text, now)
