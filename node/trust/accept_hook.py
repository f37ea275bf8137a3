"""Accept hooks: the application decides who may connect, once the id is proved.

Only True lets a peer in. Anything else, an error, or no answer in time keeps it out, and the peer
never learns why.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from inspect import iscoroutine
from typing import Any, Final, cast

from anyio import move_on_after

from parley._crypto.identity import NodeId
from parley._lbm.codec import Value
from parley._node.errors import APPLICATION_ERRORS, ConfigError
from parley._node.transport.options import require_callable
from parley._node.transport.waiting import is_async
from parley._node.trust.policies import OneOnly, TrustPolicy

logger = logging.getLogger("parley.trust")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A peer that asks to be let in, or was dialled.

    Attributes:
        node_id: who it proved to be.
        role: what it claims to be, from which no rights follow.
        info: what it says of itself, likewise; at most 1,024 bytes encoded.
        address: the address that was dialled, without a node id; of one that dialled us
            its host, or `unix`; `stream` for a byte stream.
        dialled: whether this side dialled, or began over a byte stream.
    """

    node_id: NodeId
    role: str
    info: Mapping[str, Value] = field(hash=False)
    address: str
    dialled: bool


AcceptHook = Callable[[Candidate], Awaitable[bool | None]]


class Hook:
    """An accept hook where a trust policy may stand."""

    name: Final = "hook"
    # There is no id to decide on.
    allows_plaintext: Final = False

    def __init__(self, function: AcceptHook) -> None:
        self.function = function

    async def refusal(self, candidate: Candidate, timeout: float) -> str | None:
        """Why the candidate is not let in, for the local log; None if it is.

        `timeout` is seconds for the hook, which is cancelled then.
        """
        allowed: bool | None = None
        with move_on_after(timeout) as scope:
            try:
                allowed = await self.function(candidate)
            except APPLICATION_ERRORS:
                logger.exception(
                    "the accept hook failed for %s",
                    candidate.node_id,
                    extra={"event": "trust.hook-failed", "peer": candidate.node_id},
                )
                return f"the accept hook failed for {candidate.node_id}"
        if scope.cancel_called:  # also one that did not let itself be cancelled
            return f"the accept hook did not decide on {candidate.node_id} in {timeout:g} s"
        # Nothing but True: what a hook returns by mistake is mostly true.
        return None if allowed is True else f"the accept hook refused {candidate.node_id}"


Decider = TrustPolicy | Hook


def decider(trust: TrustPolicy | AcceptHook) -> Decider:
    """What decides, of what an application gave as `trust`; ConfigError if it is neither."""
    if isinstance(trust, type):
        name = trust.__name__
        raise ConfigError(f"trust is the class {name}; use an instance such as {name}(..)")
    # A protocol with properties cannot be asked of a class, so its one method is.
    if hasattr(trust, "check"):
        return cast(TrustPolicy, trust)
    given: Any = trust
    if callable(given) or iscoroutine(given):
        require_callable(given, "trust=", "candidate")
        if is_async(given):
            return Hook(given)
    raise ConfigError(
        f"trust is {trust!r}; it must be a trust policy or an async function of a Candidate"
    )


def one_only(node_id: NodeId, trust: TrustPolicy | AcceptHook) -> TrustPolicy | AcceptHook:
    """What lets in a single node, as long as `trust` does."""
    policy = decider(trust)
    if not isinstance(policy, Hook):
        return OneOnly(node_id, policy)

    async def hook(candidate: Candidate) -> bool | None:
        return candidate.node_id == node_id and await policy.function(candidate)

    return hook
