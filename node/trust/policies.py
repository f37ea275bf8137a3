"""Trust policies: may this node, which proved its id, be talked to? (section 4)

A policy either returns or raises NotTrustedError; whatever stands in the way of a
decision, such as an unreadable file, is a refusal. The id was proved in
the handshake, and `name` is the address that was dialled, or None.
"""

import logging
import os
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from inspect import iscoroutine
from typing import Any, Final, Protocol, cast

from anyio import move_on_after

from parley._crypto.identity import NodeId, PublicIdentity
from parley._lbm.codec import Value
from parley._node.errors import (
    APPLICATION_ERRORS,
    ConfigError,
    IdentityChangedError,
    KnownPeersError,
    NotTrustedError,
)
from parley._node.transport.callables import require_callable
from parley._node.transport.conditions import is_async
from parley._node.trust.known_peers import KnownPeer, KnownPeers, default_known_peers
from parley._node.trust.petnames import fingerprint

__all__ = [
    "AnyPeer",
    "FirstUse",
    "Known",
    "KnownPeer",
    "KnownPeers",
    "OneOf",
    "Pinned",
    "TrustPolicy",
    "default_known_peers",
    "parse_trust",
]


logger = logging.getLogger("parley.trust")


class TrustPolicy(Protocol):
    """What decides whether a peer is trusted.

    `Node.review` asks again about peers that were let in: `check` too, unless the policy has a
    method `recheck` beside it, which takes and raises the same but records nobody. One that has
    its `KnownPeers` as `known_peers` is also asked whenever that file has changed.
    """

    @property
    def name(self) -> str:
        """What logs call it."""

    @property
    def allows_plaintext(self) -> bool:
        """Whether a peer that proves no id at all may be met (section 5)."""

    @property
    def reads_files(self) -> bool:
        """Whether `check` may wait for a file; then it is called in a thread."""

    def check(self, peer: PublicIdentity, name: str | None) -> None:
        """Return if the peer is trusted, else raise NotTrustedError.

        Its text says which policy refused which id, and why: for the local log and
        user, never for the peer. `name` is the dialled address without a node id; None
        if the peer dialled.
        """


# Node ids are compared with == and looked up in dicts. They are public, they travel in
# every Proof, and knowing one helps nobody to hold its key: there is nothing that the
# time of a comparison could give away.


class AnyPeer:
    """Trusts everybody: for tests, local sockets and services open to all."""

    name = "any"
    allows_plaintext = True
    reads_files = False

    def check(self, peer: PublicIdentity, name: str | None) -> None:
        """Return."""


class Pinned:
    """Trusts the one id that was given beforehand."""

    name = "pinned"
    allows_plaintext = False
    reads_files = False

    def __init__(self, node_id: NodeId) -> None:
        self.node_id = node_id

    def check(self, peer: PublicIdentity, name: str | None) -> None:
        """Return if the peer is that one; else NotTrustedError."""
        if peer.node_id != self.node_id:
            raise _refusal(self, peer, f"{self.node_id} is expected")


class OneOf:
    """Trusts each of a set of ids, such as the members of a federation."""

    name = "one-of"
    allows_plaintext = False
    reads_files = False

    def __init__(self, node_ids: Collection[NodeId]) -> None:
        self.node_ids = frozenset(node_ids)

    def check(self, peer: PublicIdentity, name: str | None) -> None:
        """Return if the peer is among them; else NotTrustedError."""
        if peer.node_id not in self.node_ids:
            raise _refusal(self, peer, f"it is none of the {len(self.node_ids)} expected")


class Known:
    """Trusts the ids in a file of known peers, and writes nothing."""

    name = "known"
    allows_plaintext = False
    reads_files = True

    def __init__(self, known_peers: KnownPeers) -> None:
        self.known_peers = known_peers

    def check(self, peer: PublicIdentity, name: str | None) -> None:
        """Return if the peer is on record and `name` is not another's; else NotTrustedError."""
        with _failing_closed(self, peer):
            _require_on_record(self, self.known_peers, peer, name)


class FirstUse:
    """Trusts and records whom it meets first; from then on a name stands for one id.

    It protects the second meeting, not the first, of which the log has a line with the id as
    words, for people to compare. `clock` gives the first-seen time.
    """

    name = "first-use"
    allows_plaintext = False
    reads_files = True

    def __init__(
        self, known_peers: KnownPeers, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.known_peers = known_peers
        self._clock = clock

    def check(self, peer: PublicIdentity, name: str | None) -> None:
        """Record the peer and its name; NotTrustedError if `name` is another's on record."""
        with _failing_closed(self, peer):
            known = self.known_peers.lookup(peer.node_id)
            if known is not None and (name is None or name in known.names):
                return
            try:
                self.known_peers.add(peer.node_id, name, self._clock())
                if known is None:
                    _tell_first_use(peer.node_id, name)
            except KnownPeersError:
                # `add` keeps one id for each name, also against another process. Here
                # is only said what that means.
                _require_same_id(self, self.known_peers, peer, name)
                raise

    def recheck(self, peer: PublicIdentity, name: str | None) -> None:
        """Return if the peer, met before, is on record yet and `name` is not another's; else
        NotTrustedError."""
        with _failing_closed(self, peer):
            _require_on_record(self, self.known_peers, peer, name)


class OneOnly:
    """Trusts a single node, as long as another policy does."""

    allows_plaintext = False

    def __init__(self, node_id: NodeId, policy: TrustPolicy) -> None:
        self.name = policy.name
        self.reads_files = policy.reads_files
        self.known_peers = known_peers_of(policy)
        self._pinned = Pinned(node_id)
        self._policy = policy

    def check(self, peer: PublicIdentity, name: str | None) -> None:
        """Return if the peer is that one and the policy trusts it; else NotTrustedError."""
        self._pinned.check(peer, name)
        self._policy.check(peer, name)

    def recheck(self, peer: PublicIdentity, name: str | None) -> None:
        """Ask the policy again."""
        recheck(self._policy, peer, name)


def recheck(policy: TrustPolicy, peer: PublicIdentity, name: str | None) -> None:
    """Ask about a peer that was let in, as `check` does about others."""
    again: Callable[[PublicIdentity, str | None], None] = getattr(policy, "recheck", policy.check)
    again(peer, name)


def known_peers_of(policy: object) -> KnownPeers | None:
    """The file that a policy decides by, if it does by one."""
    known_peers = getattr(policy, "known_peers", None)
    return known_peers if isinstance(known_peers, KnownPeers) else None


def parse_trust(text: str, known_path: str | os.PathLike[str] | None = None) -> TrustPolicy:
    """Return the policy that a setting names.

    `any`; `first-use` or `known`, on the file at `known_path` (by default
    `default_known_peers()`); or the path of a file of known peers, with a slash or dot in
    it. ConfigError for anything else: a mistyped word shall not pass for a file.
    """
    if text == AnyPeer.name:
        return AnyPeer()
    if text in (FirstUse.name, Known.name):
        known_peers = KnownPeers(default_known_peers() if known_path is None else known_path)
        return FirstUse(known_peers) if text == FirstUse.name else Known(known_peers)
    if "\0" in text or not ("/" in text or "." in text):
        raise ConfigError(
            "trust is any, first-use, known, or the path of a known-peers file, "
            f"not {ascii(text)[:80]}; a path has a / or a dot"
        )
    return Known(KnownPeers(os.path.expanduser(text)))


def _tell_first_use(node_id: NodeId, name: str | None) -> None:
    where = "one that dialled us" if name is None else f"the one at {name}"
    logger.warning(
        "first use: %s, is on record from now on: %s (%s)",
        where,
        node_id,
        fingerprint(node_id),
        extra={"event": "peer.first-use", "peer": node_id, "dialled": name},
    )


def _refusal(policy: TrustPolicy, peer: PublicIdentity, reason: str) -> NotTrustedError:
    return NotTrustedError(f"trust policy {policy.name!r} refused {peer.node_id}: {reason}")


def _require_same_id(
    policy: TrustPolicy, known_peers: KnownPeers, peer: PublicIdentity, name: str | None
) -> None:
    """Raise IdentityChangedError if `name` is on record under another id than the peer's."""
    if name is None:
        return
    holder = known_peers.by_name(name)
    if holder is not None and holder.node_id != peer.node_id:
        refusal = _refusal(
            policy,
            peer,
            f"WARNING: THE ID BEHIND {name} HAS CHANGED. Since {holder.first_seen:%Y-%m-%d} it "
            f"was {holder.node_id}. Somebody may be posing as that peer; if the change is "
            f"known to be right, forget the old id in {known_peers.path}",
        )
        raise IdentityChangedError(
            refusal.text,
            name=name,
            old=holder.node_id,
            new=peer.node_id,
            first_seen=holder.first_seen,
            path=known_peers.path,
        )


def _require_on_record(
    policy: TrustPolicy, known_peers: KnownPeers, peer: PublicIdentity, name: str | None
) -> None:
    # One known peer must not pass for another either.
    _require_same_id(policy, known_peers, peer, name)
    if known_peers.lookup(peer.node_id) is None:
        raise _refusal(policy, peer, f"it is not in {known_peers.path}")


@contextmanager
def _failing_closed(policy: TrustPolicy, peer: PublicIdentity) -> Iterator[None]:
    """Turn trouble with the file into a refusal."""
    try:
        yield
    except KnownPeersError as error:
        raise _refusal(policy, peer, str(error)) from error


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
