"""Trust policies, accept hooks and the file of known peers."""

from parley._node.trust.key_statements import KeyStatements, Offer, default_key_statements
from parley._node.trust.policies import (
    AcceptHook,
    AnyPeer,
    Candidate,
    FirstUse,
    Known,
    KnownPeer,
    KnownPeers,
    OneOf,
    Pinned,
    TrustPolicy,
    default_known_peers,
    parse_trust,
)
from parley._node.trust.statement_table import IdsOnRecord

__all__ = [
    "AcceptHook",
    "AnyPeer",
    "Candidate",
    "FirstUse",
    "IdsOnRecord",
    "KeyStatements",
    "Known",
    "KnownPeer",
    "KnownPeers",
    "Offer",
    "OneOf",
    "Pinned",
    "TrustPolicy",
    "default_key_statements",
    "default_known_peers",
    "parse_trust",
]
