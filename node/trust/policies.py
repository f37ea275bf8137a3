"""Trust policies and accept hooks, which decide which peers are accepted after they have proved
their node IDs (docs/protocol.md section 4).

A policy returns or raises NotTrustedError. If something prevents a decision, such as an unreadable
file, the peer is refused.
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
from parley._node.trust.words import fingerprint

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
    """A trust policy: decides whether a peer is trusted.

    `Node.review` rechecks accepted peers. It calls `recheck`, if the policy has this method, or
    else `check`. `recheck` has the signature of `check` but records nothing. If the policy has an
    attribute `known_peers`, a `KnownPeers`, its peers are also rechecked whenever that file
    changes.

    Example:

        from parley import Identity, Node, NotTrustedError

        class Blocklist:
            name = "blocklist"
            allows_plaintext = False
            reads_files = False

            def __init__(self, *blocked):
                self.blocked = blocked

            def check(self, peer, name):
                if peer.node_id in self.blocked:
                    raise NotTrustedError(f"{peer.node_id} is blocked")

        server = Node(Identity.create(), trust=Blocklist(peer.node_id))
    """

    @property
    def name(self) -> str:
        """The name of the policy in logs."""

    @property
    def allows_plaintext(self) -> bool:
        """Whether peers without a node ID are accepted, on unencrypted connections (section 5)."""

    @property
    def reads_files(self) -> bool:
        """Whether `check` may wait for a file and must run in a thread."""

    def check(self, peer: PublicIdentity, name: str | None) -> None:
        """Return if the peer is trusted.

        `name` is the dialled address without a node ID, or None if the peer dialled.

        Raises:
            NotTrustedError: the text names the policy, the node ID and the reason; it is logged,
                and never sent to the peer.
        """


# Node IDs are public, so they need no constant-time comparison.


class AnyPeer:
    """Trust every peer; for tests, local sockets and public services.

    Example:

        from parley import Identity, Node
        from parley.trust import AnyPeer

        async with Node(Identity.create(), trust=AnyPeer()) as server:
            await server.listen("tcp://127.0.0.1:0")
    """

    name = "any"
    allows_plaintext = True
    reads_files = False

    def check(self, peer: PublicIdentity, name: str | None) -> None:
        """Return without a check."""


class Pinned:
    """Trust only the peer with the given node ID.

    Example:

        from parley import Identity, Node
        from parley.trust import Pinned

        async with Node(Identity.create()) as server:
            address = await server.listen("tcp://127.0.0.1:0")
            without_id = address.partition("#")[0]
            await node.connect(without_id, trust=Pinned(server.node_id))
    """

    name = "pinned"
    allows_plaintext = False
    reads_files = False

    def __init__(self, node_id: NodeId) -> None:
        self.node_id = node_id

    def check(self, peer: PublicIdentity, name: str | None) -> None:
        """Return if the peer has the node ID, or a person accepted it as the successor; else raise
        NotTrustedError.
        """
        if peer.node_id != self.node_id and self.node_id not in peer.accepted_predecessors:
            raise _refusal(self, peer, f"{self.node_id} is expected")


class Dialled(Pinned):
    """Trust only the node with the ID that was dialled, or the node that has taken its place.

    Unlike for a list of IDs, no person must have accepted the successor (rule 22.35). The peer is
    rechecked when the statements change, so its session ends if it is no longer the successor.
    """

    def check(self, peer: PublicIdentity, name: str | None) -> None:
        """Return if the peer has the node ID or is its `current`; else raise NotTrustedError."""
        if peer.node_id != self.node_id and self.node_id not in peer.predecessors:
            raise _refusal(self, peer, f"{self.node_id} is expected")


class OneOf:
    """Trust the peers with the given node IDs, such as the members of a federation.

    Example:

        from parley import Identity, Node
        from parley.trust import OneOf

        friend = Identity.create()
        server = Node(Identity.create(), trust=OneOf([friend.node_id]))
    """

    name = "one-of"
    allows_plaintext = False
    reads_files = False

    def __init__(self, node_ids: Collection[NodeId]) -> None:
        self.node_ids = frozenset(node_ids)

    def check(self, peer: PublicIdentity, name: str | None) -> None:
        """Return if the peer has one of the node IDs, or a person accepted it as the successor of
        one; else raise NotTrustedError.
        """
        if peer.node_id not in self.node_ids and self.node_ids.isdisjoint(
            peer.accepted_predecessors
        ):
            raise _refusal(
                self, peer, f"it is not among the {len(self.node_ids)} expected node IDs"
            )


class Known:
    """Trust the peers in a file of known peers, without writing to it.

    Example:

        from parley import Identity, Node
        from parley.trust import Known, KnownPeers

        server = Node(Identity.create(), trust=Known(KnownPeers("known_peers")))
    """

    name = "known"
    allows_plaintext = False
    reads_files = True

    def __init__(self, known_peers: KnownPeers) -> None:
        self.known_peers = known_peers

    def check(self, peer: PublicIdentity, name: str | None) -> None:
        """Return if the file contains the peer, and its dialled name for no other peer.

        Raises:
            NotTrustedError: it doesn't.
            IdentityChangedError: the file has the name for another node ID.
        """
        with _refuse_on_error(self, peer):
            _require_on_record(self, self.known_peers, peer, name)


class FirstUse:
    """Trust on first use: record the first node seen under each name and require the same ID
    afterwards.

    This protects later connections, but not the first. The first connection is logged with the node
    ID as words, so that people can compare them. `clock` returns the first-seen time.

    Example:

        from tempfile import TemporaryDirectory
        from parley import Identity, Node
        from parley.trust import FirstUse, KnownPeers

        with TemporaryDirectory() as directory:
            trust = FirstUse(KnownPeers(f"{directory}/known_peers"))
            async with Node(Identity.create()) as server:
                address = await server.listen(f"unix://{directory}/socket")
                await node.connect(address.partition("#")[0], trust=trust)
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
        """Record the peer and its name.

        Raises:
            NotTrustedError: the file cannot be used.
            IdentityChangedError: the file has the name for another node ID.
        """
        with _refuse_on_error(self, peer):
            # A predecessor's line also stands for the peer, which is not recorded again.
            lines = self.known_peers.lookup_all((peer.node_id, *peer.predecessors))
            if lines and (name is None or any(name in line.names for line in lines)):
                return
            try:
                # A successor's line of its own would outlive a conflict about it.
                owner = lines[0].node_id if lines else peer.node_id
                self.known_peers.add(owner, name, self._clock())
                if not lines:
                    _log_first_use(peer.node_id, name)
            except KnownPeersError:
                # `add` refused a second ID for the name; raise an error that explains it.
                _require_same_id(self, self.known_peers, peer, name)
                raise

    def recheck(self, peer: PublicIdentity, name: str | None) -> None:
        """Return if the file still contains the peer, and its name for no other peer.

        Raises:
            NotTrustedError: it doesn't.
            IdentityChangedError: the file has the name for another node ID.
        """
        with _refuse_on_error(self, peer):
            _require_on_record(self, self.known_peers, peer, name)


class OneOnly:
    """Trust the node that a link is to, or the node that has taken its place, if another policy
    trusts it too.
    """

    allows_plaintext = False

    def __init__(self, node_id: NodeId, policy: TrustPolicy) -> None:
        self.name = policy.name
        self.reads_files = policy.reads_files
        self.known_peers = known_peers_of(policy)
        self.node_id = node_id
        self._dialled = Dialled(node_id)
        self._policy = policy

    def check(self, peer: PublicIdentity, name: str | None) -> None:
        """Return if the peer has the node ID or has taken its place, and the policy trusts it;
        else raise NotTrustedError.
        """
        self._dialled.check(peer, name)
        self._policy.check(peer, name)

    def recheck(self, peer: PublicIdentity, name: str | None) -> None:
        """Recheck the peer with the other policy."""
        self._dialled.check(peer, name)
        recheck(self._policy, peer, name)


def recheck(policy: TrustPolicy, peer: PublicIdentity, name: str | None) -> None:
    """Recheck an accepted peer; raise the errors of `TrustPolicy.check`."""
    again: Callable[[PublicIdentity, str | None], None] = getattr(policy, "recheck", policy.check)
    again(peer, name)


def known_peers_of(policy: object) -> KnownPeers | None:
    """Return the file of known peers that a policy, or the node's statements, use, or None."""
    known_peers = getattr(policy, "known_peers", None)
    return known_peers if isinstance(known_peers, KnownPeers) else None


def ids_named_by(policy: object) -> Collection[NodeId]:
    """Return the node IDs that a policy names, without those of known peers and of dials."""
    if isinstance(policy, Pinned | OneOnly) and not isinstance(policy, Dialled):
        return (policy.node_id,)
    return policy.node_ids if isinstance(policy, OneOf) else ()


def known_lines_of(known_peers: KnownPeers) -> Mapping[NodeId, KnownPeer]:
    """Return the lines of known peers by node ID, or none if the file cannot be read."""
    try:
        return known_peers.snapshot()
    except KnownPeersError:
        return {}


def parse_trust(text: str, known_path: str | os.PathLike[str] | None = None) -> TrustPolicy:
    """Return the trust policy that the text of a setting describes.

    The text is `any`, or `first-use` or `known` for the file at `known_path` (by default
    `default_known_peers()`), or the path of a file of known peers. A path must contain a slash or a
    dot, so that a misspelt word isn't taken for a file.

    Example:

        from parley import Identity, Node
        from parley.trust import parse_trust

        server = Node(Identity.create(), trust=parse_trust("first-use", "known_peers"))

    Raises:
        ConfigError: the text is none of these.
    """
    if text == AnyPeer.name:
        return AnyPeer()
    if text in (FirstUse.name, Known.name):
        known_peers = KnownPeers(default_known_peers() if known_path is None else known_path)
        return FirstUse(known_peers) if text == FirstUse.name else Known(known_peers)
    if "\0" in text or not ("/" in text or "." in text):
        raise ConfigError(
            f"invalid trust {ascii(text)[:80]}: expected any, first-use, known, or the path of a "
            "known-peers file; a path contains a / or a dot"
        )
    return Known(KnownPeers(os.path.expanduser(text)))


def _log_first_use(node_id: NodeId, name: str | None) -> None:
    where = "that connected" if name is None else f"at {name}"
    logger.warning(
        "first use: recorded the node %s: %s (%s)",
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
    """Raise IdentityChangedError if the file has `name` for another node ID."""
    if name is None:
        return
    holder = known_peers.by_name(name)
    if holder is not None and holder.node_id not in (peer.node_id, *peer.predecessors):
        refusal = _refusal(
            policy,
            peer,
            f"WARNING: THE NODE ID AT {name} HAS CHANGED. Since {holder.first_seen:%Y-%m-%d} it "
            f"was {holder.node_id}. Another node may be impersonating it. If you know that the "
            f"change is legitimate, remove the old ID from {known_peers.path}",
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
    # A known peer must not impersonate another one.
    _require_same_id(policy, known_peers, peer, name)
    if not known_peers.lookup_all((peer.node_id, *peer.predecessors)):
        raise _refusal(policy, peer, f"it is not in {known_peers.path}")


@contextmanager
def _refuse_on_error(policy: TrustPolicy, peer: PublicIdentity) -> Iterator[None]:
    """Convert an error of the file into a refusal."""
    try:
        yield
    except KnownPeersError as error:
        raise _refusal(policy, peer, str(error)) from error


@dataclass(frozen=True, slots=True)
class Candidate:
    """A peer that an accept hook decides on.

    Attributes: node_id: its node ID, which it has proved. role: the role that it claims; it gives
    no rights. info: the application data that it claims, at most 1,024 bytes encoded. address: the
    dialled address without a node ID. If the peer dialled, its host or `unix`; for a byte stream,
    `stream`. dialled: whether this node dialled, or was the initiator over a byte stream.
    predecessors: the ended node IDs that it has taken the place of (section 22).
    accepted_predecessors: those of them whose successors a person accepted, so that it also has the
    rights granted to them.

    Example:

        from parley import Identity, Node

        members = {peer.node_id}

        async def member(candidate):
            return not members.isdisjoint([candidate.node_id, *candidate.accepted_predecessors])

        server = Node(Identity.create(), trust=member)
    """

    node_id: NodeId
    role: str
    info: Mapping[str, Value] = field(hash=False)
    address: str
    dialled: bool
    predecessors: tuple[NodeId, ...] = ()
    accepted_predecessors: tuple[NodeId, ...] = ()


AcceptHook = Callable[[Candidate], Awaitable[bool | None]]


class HookPolicy:
    """An accept hook used like a trust policy."""

    name: Final = "hook"
    allows_plaintext: Final = False  # a hook decides on a node ID

    def __init__(self, function: AcceptHook) -> None:
        self.function = function

    async def refusal(self, candidate: Candidate, timeout: float) -> str | None:
        """Return why the candidate is refused, for the local log, or None.

        The hook is cancelled after `timeout` seconds.
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
        if scope.cancel_called:  # even if the hook suppressed the cancellation
            return f"the accept hook did not decide on {candidate.node_id} in {timeout:g} s"
        # Accept only True, because values returned by mistake are usually truthy.
        return None if allowed is True else f"the accept hook refused {candidate.node_id}"


ResolvedPolicy = TrustPolicy | HookPolicy


def as_policy(trust: TrustPolicy | AcceptHook) -> ResolvedPolicy:
    """Return `trust` as a policy.

    Raises:
        ConfigError: it is not a policy or an accept hook.
    """
    if isinstance(trust, type):
        name = trust.__name__
        raise ConfigError(f"invalid trust: {name} is a class; use an instance such as {name}(..)")
    # `isinstance` doesn't support protocols with properties.
    if hasattr(trust, "check"):
        return cast(TrustPolicy, trust)
    given: Any = trust
    if callable(given) or iscoroutine(given):
        require_callable(given, "trust=", "candidate")
        if is_async(given):
            return HookPolicy(given)
    raise ConfigError(
        f"invalid trust {trust!r}: expected a trust policy or an async function of a Candidate"
    )


def restrict_to_node(node_id: NodeId, trust: TrustPolicy | AcceptHook) -> TrustPolicy | AcceptHook:
    """Return a policy that accepts a single node or its successor, if `trust` accepts it."""
    policy = as_policy(trust)
    if not isinstance(policy, HookPolicy):
        return OneOnly(node_id, policy)

    async def hook(candidate: Candidate) -> bool | None:
        same = node_id in (candidate.node_id, *candidate.predecessors)
        return same and await policy.function(candidate)

    return hook
