"""Building blocks of the wire protocol, for observers, auditors and other implementations."""

from parley._crypto.hashing import HashAlgorithm
from parley._crypto.key_schedule import chain_bind, chain_start_initiator, chain_start_responder
from parley._crypto.record_protection import HashChain, StreamKey, check_seal
from parley._crypto.signing import Verifier
from parley._lbm.codec import Encodable, Value, decode, encode
from parley._lbm.limits import LbmLimits
from parley._node.protocol.handshake import Agreed
from parley._node.protocol.observer import Checkpoint, Observer

__all__ = [
    "Agreed",
    "Checkpoint",
    "Encodable",
    "HashAlgorithm",
    "HashChain",
    "LbmLimits",
    "Observer",
    "StreamKey",
    "Value",
    "Verifier",
    "chain_bind",
    "chain_start_initiator",
    "chain_start_responder",
    "check_seal",
    "decode",
    "encode",
]
