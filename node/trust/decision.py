"""`TrustDecision`: a policy's or accept hook's decision on a peer that has proved its node ID.

A decision that may take time runs in a task, or in a thread if the policy reads files, and is
cancelled when the connection ends. Until it is made, the node reads no data from the peer, and the
handshake's deadline applies. Accepted peers can be rechecked (`node.trust.revalidation`).
"""

from collections.abc import Callable, Sequence
from functools import partial

from anyio import to_thread

from parley._crypto.identity import NodeId, PublicIdentity
from parley._node.errors import (
    IdentityChangedError,
    IdentityEndedError,
    KeyStatementsError,
    NotTrustedError,
    ParleyError,
)
from parley._node.protocol.handshake import expect
from parley._node.protocol.reports import PeerIdentified
from parley._node.protocol.states import State
from parley._node.remote.live_connection import LiveConnection
from parley._node.transport.loop import Runner
from parley._node.trust.ended_ids import OPEN, describe_claims, describe_end, last_ended
from parley._node.trust.key_statements import KeyStatements
from parley._node.trust.policies import Candidate, HookPolicy, ResolvedPolicy
from parley._node.trust.statement_table import StatementTable

# Raises NotTrustedError, as `TrustPolicy.check` does.
Check = Callable[[PublicIdentity, str | None], None]
# Stores the statements that a peer with this node ID presented; the policy decides on the peer.
OfferChain = Callable[[Sequence[bytes], NodeId, ResolvedPolicy], None]


class TrustDecision:
    """The decision of `trust` about one peer, which was dialled as `dialled` or dialled us (None).
    Statements that the peer presents are passed to `offer_chain`. A peer whose node ID has ended by
    `statements` is then refused before `trust` is asked. `identified` is the peer's proven
    identity, once it is known.
    """

    __slots__ = (
        "_dialled",
        "_live",
        "_offer_chain",
        "_outdated",
        "_runner",
        "_statements",
        "identified",
        "trust",
    )

    def __init__(
        self,
        live: LiveConnection,
        trust: ResolvedPolicy,
        dialled: str | None,
        statements: KeyStatements,
        offer_chain: OfferChain,
    ) -> None:
        self._live = live
        self._offer_chain = offer_chain
        self._statements = statements
        self._dialled = dialled
        self._runner: Runner | None = None
        self._outdated = False
        self.trust = trust
        self.identified: PeerIdentified | None = None

    def decide(self, identified: PeerIdentified) -> None:
        """Accept or refuse the peer, now or when there is a result."""
        self.identified = identified
        trust = self.trust
        reads_files = self._statements.path is not None or bool(identified.statements)
        if reads_files or isinstance(trust, HookPolicy) or trust.reads_files:
            self._runner = self._live.backend.spawn(self._decide)
        else:
            self._apply(self.refusal(trust.check))

    def stop(self) -> None:
        """Cancel the decision, because the connection has ended."""
        if self._runner is not None:
            self._runner.cancel()
            self._runner = None

    @property
    def is_made(self) -> bool:
        """Whether the peer was accepted or refused. False if the peer has no node ID."""
        return self.identified is not None and self._live.core.state is not State.DECIDING

    def outdate(self) -> None:
        """Restart a decision in progress, because its basis may have changed."""
        self._outdated = self._live.core.state is State.DECIDING

    def change_trust(self, trust: ResolvedPolicy) -> None:
        """Use another policy from now on, if the peer dialled us."""
        if not self._live.core.initiator:
            self.trust = trust

    def refuse(self, refusal: NotTrustedError) -> None:
        """Close the connection: the peer is no longer trusted."""
        self._live.refuse(refusal)

    def refuse_ended(self) -> None:
        """Close the connection if its peer was accepted, and its node ID has ended since."""
        ended = self._ended() if self.is_made else None
        if ended is not None:
            self.refuse(ended)

    def refusal(self, check: Check) -> NotTrustedError | None:
        """Return why the peer is not trusted by a policy or has ended, or None. The cause of the
        error is what prevented the policy from deciding, if anything did."""
        ended = self._ended()
        if ended is not None:
            return ended
        try:
            check(expect(self.identified).identity, self._dialled)
        except NotTrustedError as error:
            return error
        except ParleyError as error:
            refused = NotTrustedError(str(error))
            refused.__cause__ = error
            return refused
        return None

    async def refusal_of(self, hook: HookPolicy) -> NotTrustedError | None:
        """Return why an accept hook refuses the peer or it has ended, or None."""
        ended = self._ended()
        if ended is not None:
            return ended
        identified = expect(self.identified)
        candidate = Candidate(
            identified.identity.node_id,
            identified.role,
            identified.info,
            address=self._live.name,
            dialled=self._live.core.initiator,
            predecessors=identified.identity.predecessors,
            accepted_predecessors=identified.identity.accepted_predecessors,
        )
        text = await hook.refusal(candidate, self._live.config.tuning.accept_timeout)
        return None if text is None else NotTrustedError(text)

    async def _decide(self) -> None:
        answer: NotTrustedError | None = NotTrustedError("the decision was cancelled")
        try:
            await self._store_presented()
            while True:
                self._outdated = False
                answer = await self._answer(self.trust)
                if not self._outdated:
                    break
        finally:
            # Also when the hook itself raised a cancellation.
            self._runner = None
            if self._live.core.state is State.DECIDING:
                self._apply(answer)
                self._live.driver.step()

    async def _store_presented(self) -> None:
        identified = expect(self.identified)
        if identified.statements:
            await to_thread.run_sync(
                self._offer_chain,
                identified.statements,
                identified.identity.node_id,
                self.trust,
                abandon_on_cancel=True,
            )

    def _ended(self) -> NotTrustedError | None:
        """Return why the peer is refused because its node ID has ended, or None; tell policies its
        predecessors.
        """
        identity = expect(self.identified).identity
        table = self._statements.table
        if table.has_ended(identity.node_id):
            return ended_error(table, identity.node_id)
        identity.predecessors = table.predecessors(identity.node_id)
        identity.accepted_predecessors = table.accepted_predecessors(identity.node_id)
        return None

    async def _answer(self, trust: ResolvedPolicy) -> NotTrustedError | None:
        if not isinstance(trust, HookPolicy) and trust.reads_files:
            read = partial(self._read_statements, then=partial(self.refusal, trust.check))
            return await to_thread.run_sync(read, abandon_on_cancel=True)
        if self._statements.path is not None:
            unreadable = await to_thread.run_sync(self._read_statements, abandon_on_cancel=True)
            if unreadable is not None:
                return unreadable
        if isinstance(trust, HookPolicy):
            return await self.refusal_of(trust)
        return self.refusal(trust.check)

    def _read_statements(
        self, then: Callable[[], NotTrustedError | None] = lambda: None
    ) -> NotTrustedError | None:
        """Return why the peer is refused if the file of statements cannot be read; otherwise the
        result of `then`.
        """
        try:
            self._statements.refresh()
        except KeyStatementsError as error:
            return NotTrustedError(str(error))
        return then()

    def _apply(self, answer: NotTrustedError | None) -> None:
        core, now = self._live.core, self._live.backend.now()
        if answer is None:
            core.accept_peer(now)
        else:
            self._live.refused = answer
            core.refuse_peer(answer.text, now)


def ended_error(
    table: StatementTable, node_id: NodeId, changed: IdentityChangedError | None = None
) -> IdentityEndedError:
    """Return the error that says that a node ID has ended, and what took its place. `changed` is
    the error of a dial that found another node under the name of the ended ID.
    """
    current, mend = table.current(node_id), ""
    if current is not None:
        reason = f"its successor is {current}"
    else:
        last = last_ended(table, node_id)
        ending = describe_end(table, last)
        reason = describe_claims(table, last) if ending.outcome in OPEN else ending.text
        if last != node_id:
            reason = f"its successor {last} has ended too: {reason}"
        mend = ending.mend
    subject = f"the node ID {node_id}"
    if changed is not None:
        subject = f"the node at {changed.name} is {changed.new}, and the known ID {node_id}"
        mend = mend or "to see what is stored, run: parley peers show"
    text = f"{subject} has ended: {reason}"
    return IdentityEndedError(
        f"{text}; {mend}" if mend else text, node_id=node_id, successor=current
    )
