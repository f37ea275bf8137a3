"""The wire itself, for observers, auditors and the authors of another implementation."""

from crypto.chain import HashChain, check_seal
from crypto.hashing import HashAlgorithm
from crypto.schedule import chain_bind, chain_start_initiator, chain_start_responder
from crypto.signing import Verifier
from crypto.streamkeys import StreamKey
from lbm.codec import Encodable, Value, decode, encode
from lbm.limits import LbmLimits
from node.protocol.handshake import Agreed
from node.protocol.observer import Checkpoint, Observer

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
