"""Trust policies and accept hooks: which nodes, after proving their ids, are accepted
(docs/protocol.md section 4).

A policy returns or raises NotTrustedError. Anything that prevents a decision, such as an unreadable
file, is a refusal. `name` is the dialled address, or None.
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
    """Decides whether a peer is trusted.

    `Node.review` checks accepted peers again, with the method `recheck` if there is one (it has the
    signature of `check` but records nothing), or else with `check`. A policy with an attribute
    `known_peers`, a `KnownPeers`, is also checked again whenever that file has changed.
    """

    @property
    def name(self) -> str:
        """The name in logs."""

    @property
    def allows_plaintext(self) -> bool:
        """Whether peers without an id are accepted (section 5)."""

    @property
    def reads_files(self) -> bool:
        """Whether `check` may wait for a file and must be called in a thread."""

    def check(self, peer: PublicIdentity, name: str | None) -> None:
        """Return if the peer is trusted, else raise NotTrustedError.

        The error's text names the policy, the id and the reason; it is never sent to the peer.
        `name` is the dialled address without a node id, or None if the peer dialled.
        """


# Node ids are public, so comparing them needs no constant time.


class AnyPeer:
    """Trusts every peer: for tests, local sockets and public services."""

    name = "any"
    allows_plaintext = True
    reads_files = False

    def check(self, peer: PublicIdentity, name: str | None) -> None:
        """Return."""


class Pinned:
    """Trusts a single id."""

    name = "pinned"
    allows_plaintext = False
    reads_files = False

    def __init__(self, node_id: NodeId) -> None:
        self.node_id = node_id

    def check(self, peer: PublicIdentity, name: str | None) -> None:
        """Return if the peer has that id, else raise NotTrustedError."""
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
        """Return if the peer has one of the ids, else raise NotTrustedError."""
        if peer.node_id not in self.node_ids:
            raise _refusal(self, peer, f"it is none of the {len(self.node_ids)} expected")


class Known:
    """Trusts the ids in a file of known peers, without writing to it."""

    name = "known"
    allows_plaintext = False
    reads_files = True

    def __init__(self, known_peers: KnownPeers) -> None:
        self.known_peers = known_peers

    def check(self, peer: PublicIdentity, name: str | None) -> None:
        """Return if the file has the peer and no other one with `name`; else raise
        NotTrustedError."""
        with _refuse_on_error(self, peer):
            _require_on_record(self, self.known_peers, peer, name)


class FirstUse:
    """Trust on first use: records the first node seen under each name, and requires the same id
    afterwards.

    It protects later connections, not the first, which is logged with the id as words for people to
    compare. `clock` returns the first-seen time.
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
        """Record the peer and its name; NotTrustedError if another peer has `name`."""
        with _refuse_on_error(self, peer):
            known = self.known_peers.lookup(peer.node_id)
            if known is not None and (name is None or name in known.names):
                return
            try:
                self.known_peers.add(peer.node_id, name, self._clock())
                if known is None:
                    _log_first_use(peer.node_id, name)
            except KnownPeersError:
                # `add` has refused a second id for the name; explain that.
                _require_same_id(self, self.known_peers, peer, name)
                raise

    def recheck(self, peer: PublicIdentity, name: str | None) -> None:
        """Return if the file still has the peer and no other one with `name`; else raise
        NotTrustedError."""
        with _refuse_on_error(self, peer):
            _require_on_record(self, self.known_peers, peer, name)


class OneOnly:
    """Trusts a single id, if another policy does as well."""

    allows_plaintext = False

    def __init__(self, node_id: NodeId, policy: TrustPolicy) -> None:
        self.name = policy.name
        self.reads_files = policy.reads_files
        self.known_peers = known_peers_of(policy)
        self._pinned = Pinned(node_id)
        self._policy = policy

    def check(self, peer: PublicIdentity, name: str | None) -> None:
        """Return if the peer has the id and the policy trusts it; else raise NotTrustedError."""
        self._pinned.check(peer, name)
        self._policy.check(peer, name)

    def recheck(self, peer: PublicIdentity, name: str | None) -> None:
        """As the other policy's."""
        recheck(self._policy, peer, name)


def recheck(policy: TrustPolicy, peer: PublicIdentity, name: str | None) -> None:
    """Check an accepted peer again; raises as `TrustPolicy.check`."""
    again: Callable[[PublicIdentity, str | None], None] = getattr(policy, "recheck", policy.check)
    again(peer, name)


def known_peers_of(policy: object) -> KnownPeers | None:
    """Return the file that a policy uses, if it uses one."""
    known_peers = getattr(policy, "known_peers", None)
    return known_peers if isinstance(known_peers, KnownPeers) else None


def parse_trust(text: str, known_path: str | os.PathLike[str] | None = None) -> TrustPolicy:
    """Return the policy that a setting names.

    `any`; `first-use` or `known`, on the file at `known_path` (by default
    `default_known_peers()`); or the path of a file of known peers, with a slash or dot in
    it. ConfigError for anything else, so that a mistyped word isn't taken for a file.
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


def _log_first_use(node_id: NodeId, name: str | None) -> None:
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
    # A known peer must not impersonate another one.
    _require_same_id(policy, known_peers, peer, name)
    if known_peers.lookup(peer.node_id) is None:
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
    """A peer that connects, or was dialled.

    Attributes:
        node_id: its proven id.
        role: its claimed role, which gives no rights.
        info: its claimed application data, at most 1,024 bytes encoded.
        address: the dialled address without a node id; the host, or `unix`, of a peer that
            dialled us; `stream` for a byte stream.
        dialled: whether this side dialled, or started over a byte stream.
    """

    node_id: NodeId
    role: str
    info: Mapping[str, Value] = field(hash=False)
    address: str
    dialled: bool


AcceptHook = Callable[[Candidate], Awaitable[bool | None]]


class HookPolicy:
    """An accept hook in place of a trust policy."""

    name: Final = "hook"
    allows_plaintext: Final = False  # a hook decides about an id

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
        # Only True: values returned by mistake are usually true.
        return None if allowed is True else f"the accept hook refused {candidate.node_id}"


ResolvedPolicy = TrustPolicy | HookPolicy


def as_policy(trust: TrustPolicy | AcceptHook) -> ResolvedPolicy:
    """Return `trust` as a policy; ConfigError if it is neither a policy nor a hook."""
    if isinstance(trust, type):
        name = trust.__name__
        raise ConfigError(f"trust is the class {name}; use an instance such as {name}(..)")
    # `isinstance` doesn't support protocols with properties.
    if hasattr(trust, "check"):
        return cast(TrustPolicy, trust)
    given: Any = trust
    if callable(given) or iscoroutine(given):
        require_callable(given, "trust=", "candidate")
        if is_async(given):
            return HookPolicy(given)
    raise ConfigError(
        f"trust is {trust!r}; it must be a trust policy or an async function of a Candidate"
    )


def restrict_to_node(node_id: NodeId, trust: TrustPolicy | AcceptHook) -> TrustPolicy | AcceptHook:
    """Return a policy that accepts a single node, if `trust` accepts it."""
    policy = as_policy(trust)
    if not isinstance(policy, HookPolicy):
        return OneOnly(node_id, policy)

    async def hook(candidate: Candidate) -> bool | None:
        return candidate.node_id == node_id and await policy.function(candidate)

    return hook
