"""Algorithms, keys, the key schedule, the hash chain and identities of Parley.

The only package that imports `cryptography` and `nacl`, and no new cryptography
beyond the composition in docs/protocol.md.
"""

from crypto.auditor import AuditorKey, AuditorPrivateKey
from crypto.auditor_file import load_auditor_key, save_auditor_key
from crypto.chain import HashChain, check_seal, make_seal, seal_mask
from crypto.ciphers import CipherAlgorithm
from crypto.errors import (
    CounterExhaustedError,
    CryptoError,
    DecryptError,
    IdentityError,
    InvalidKeyError,
    KeyExchangeError,
    KeyFileError,
    KeyFileExistsError,
    KeyFileMalformedError,
    KeyFileTooOpenError,
    KeyFileUnreadableError,
    PassphraseError,
    PassphraseNeededError,
    SignatureError,
    UnknownAlgorithmError,
    WrongPassphraseError,
    WrongSizeError,
)
from crypto.exchange import EphemeralKey, KexAlgorithm
from crypto.hashing import HashAlgorithm
from crypto.identity import Identity, NodeId, PublicIdentity
from crypto.keyfile import PassphraseCost, describe_keyfile, load_identity, save_identity
from crypto.randomness import random_bytes
from crypto.registry import (
    CIPHERS,
    HASHES,
    KEX,
    NAMES,
    PARAMETERS,
    SEALINGS,
    SIGNING,
    Suite,
    all_suites,
    require_name,
)
from crypto.schedule import (
    ApplicationSecrets,
    HandshakeSecrets,
    RekeySecrets,
    chain_bind,
    chain_rekey,
    chain_start_initiator,
    chain_start_responder,
    check_network_key,
    check_network_mac,
    handshake_secrets,
    network_mac,
    next_secret,
    rekey_root,
    rekey_secrets,
)
from crypto.signing import SigningAlgorithm, SigningKey, Verifier
from crypto.streamkeys import StreamKey

__all__ = [
    "CIPHERS",
    "HASHES",
    "KEX",
    "NAMES",
    "PARAMETERS",
    "SEALINGS",
    "SIGNING",
    "ApplicationSecrets",
    "AuditorKey",
    "AuditorPrivateKey",
    "CipherAlgorithm",
    "CounterExhaustedError",
    "CryptoError",
    "DecryptError",
    "EphemeralKey",
    "HandshakeSecrets",
    "HashAlgorithm",
    "HashChain",
    "Identity",
    "IdentityError",
    "InvalidKeyError",
    "KexAlgorithm",
    "KeyExchangeError",
    "KeyFileError",
    "KeyFileExistsError",
    "KeyFileMalformedError",
    "KeyFileTooOpenError",
    "KeyFileUnreadableError",
    "NodeId",
    "PassphraseCost",
    "PassphraseError",
    "PassphraseNeededError",
    "PublicIdentity",
    "RekeySecrets",
    "SignatureError",
    "SigningAlgorithm",
    "SigningKey",
    "StreamKey",
    "Suite",
    "UnknownAlgorithmError",
    "Verifier",
    "WrongPassphraseError",
    "WrongSizeError",
    "all_suites",
    "chain_bind",
    "chain_rekey",
    "chain_start_initiator",
    "chain_start_responder",
    "check_network_key",
    "check_network_mac",
    "check_seal",
    "describe_keyfile",
    "handshake_secrets",
    "load_auditor_key",
    "load_identity",
    "make_seal",
    "network_mac",
    "next_secret",
    "random_bytes",
    "rekey_root",
    "rekey_secrets",
    "require_name",
    "save_auditor_key",
    "save_identity",
    "seal_mask",
]
