"""`Changing`: what of a node may change while it runs: whom it trusts, and its limits."""

from abc import abstractmethod
from dataclasses import fields, replace

from parley._crypto.identity import Identity
from parley._node.config import CHANGEABLE, NodeConfig
from parley._node.connections import Connections
from parley._node.errors import ConfigError
from parley._node.messaging.idempotency import IdempotencyCache
from parley._node.peer.connection_handlers import NodeContext
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.memory_budget import MemoryBudget
from parley._node.remote.session_table import SessionTable
from parley._node.trust.admission import Admission
from parley._node.trust.decision import Deciding
from parley._node.trust.policies import AcceptHook, Decider, TrustPolicy, decider
from parley._node.trust.revalidation import Reviews


class Changing(Connections):
    """A node's trust and limits."""

    identity: Identity
    trust: Decider
    _host: NodeContext  # once it runs
    _core_config: CoreConfig
    _unresumed: CoreConfig | None
    _held: MemoryBudget
    _once: IdempotencyCache
    _admission: Admission
    _sessions: SessionTable
    _reviews: Reviews

    async def review(self) -> None:
        """Ask again whether everybody is trusted who was let in, and end the sessions, parted ones
        too, of those who are not any more. Asked are the policy or hook by which each of them was
        let in: the node's own, or that of `connect`. Carried through even if it is cancelled.

        Raises:
            ParleyError: the node does not run, or has ended meanwhile.
        """
        await self._reviews.review()

    async def change_trust(self, trust: TrustPolicy | AcceptHook) -> None:
        """Set who may connect from now on, and `review` everybody by it who did.

        Raises:
            ConfigError: it is neither, or does not go with plaintext; nothing has changed.
            ParleyError: as `review`; it is set.
        """
        self.trust = self._checked(trust)
        for one in self._everybody():
            one.accepted_by(self.trust)
        await self.review()

    def change_limits(self, config: NodeConfig) -> None:
        """Apply the limits of `config`: the settings that are reloadable, and `tuning`.
        Those of connections, handshakes and all memory hold at once; what a peer is told, and what
        is kept for it, from its next connection on. A topic's longest note stays what it was.

        Raises:
            ConfigError: something else than limits differs, or they do not fit this node; nothing
                has changed. ParleyError: the node does not run.
        """
        self.backend  # noqa: B018  # raises
        for name in {each.name for each in fields(config)} - CHANGEABLE:
            if getattr(config, name) != getattr(self.config, name):
                raise ConfigError(f"{name} is not a limit: a running node keeps it as it is")
        self._core_config, self._unresumed = config.core(self.identity), None
        self.config = config
        self._host = replace(self._host, config=config)
        self._held.limit = config.memory
        results = config.tuning.once_results
        self._once.change_limits(results, config.once_peer_memory, config.once_memory)
        self._admission.change(config)
        self._sessions.config = config

    # Inside.

    @abstractmethod
    def _everybody(self) -> list[Deciding]:
        """The decisions about those who are there, or may come back for the rest of a session."""

    def _checked(self, trust: TrustPolicy | AcceptHook) -> Decider:
        decides = decider(trust)
        if self.config.plaintext != "never" and not decides.allows_plaintext:
            raise ConfigError(f"trust {decides.name!r} does not go with plaintext")
        return decides
