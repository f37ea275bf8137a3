"""The errors of `crypto`. Messages contain sizes and algorithms, never a secret.

CryptoError
├── DecryptError                 data does not decrypt with this key and counter
├── CounterExhaustedError        all nonces of a stream key were used
├── SignatureError               a signature or seal does not verify
│   └── InvalidKeyError          a public or private signing key is malformed or weak
├── KeyExchangeError             a malformed share, or an ephemeral key used twice
├── WrongSizeError               a cipher's key or nonce, or an output, of a wrong size
├── UnknownAlgorithmError        a name that is not in the registry
│   └── AlgorithmNotInstalledError   a known algorithm whose package is not installed
├── IdentityError                keys and bindings that do not form an identity, a bad node ID
├── StatementError               an invalid key statement; `reason` says why
└── KeyFileError
    ├── KeyFileUnreadableError   absent, not a regular file, or access denied
    ├── KeyFileExistsError       the file exists; key files are never overwritten
    ├── KeyFileTooOpenError      other users can read or write the file
    ├── KeyFileMalformedError    truncated, altered, or costs out of bounds
    └── PassphraseError
        ├── PassphraseNeededError
        └── WrongPassphraseError
"""

from typing import Literal

from parley._lbm.errors import ParleyError

StatementReason = Literal[
    "malformed", "unsupported", "identity", "signer", "successor", "signature", "consent"
]


class CryptoError(ParleyError):
    """Base class of the errors of `crypto`."""


class DecryptError(CryptoError):
    """Data does not decrypt: wrong key, counter or associated data, or it was altered."""


class CounterExhaustedError(CryptoError):
    """A stream key has used its last counter (2^64 - 1); a key update is required."""


class SignatureError(CryptoError):
    """A signature or seal does not verify with this key and message."""


class InvalidKeyError(SignatureError):
    """A signing key has the wrong size, is not a point of its curve, or is weak."""


class KeyExchangeError(CryptoError):
    """A key share is malformed or weak, or an ephemeral key was used twice."""


class WrongSizeError(CryptoError, ValueError):
    """A key or nonce has the wrong size, or a key derivation can't produce that many bytes."""


class UnknownAlgorithmError(CryptoError, ValueError):
    """The parameter has no algorithm of this name."""


class AlgorithmNotInstalledError(UnknownAlgorithmError):
    """The protocol has this algorithm, but the package that implements it is not installed."""


class IdentityError(CryptoError):
    """Keys and bindings do not form an identity, or a text is not a node ID."""


class StatementError(CryptoError):
    """A key statement is invalid (section 22).

    `reason` is the name of the check that failed: `malformed`, `unsupported`, `identity`, `signer`,
    `successor`, `signature` or `consent`. `text` describes the failure.
    """

    def __init__(self, reason: StatementReason, text: str, path: str = "") -> None:
        super().__init__(f"invalid key statement{path and f' in {path!r}'}: {text}")
        self.reason: StatementReason = reason
        self.text = text


class KeyFileError(CryptoError):
    """A key file cannot be used; see the subclasses."""


class KeyFileUnreadableError(KeyFileError):
    """The file is absent, is not a regular file, or can't be accessed."""


class KeyFileExistsError(KeyFileError):
    """The file exists already; a key file is never overwritten."""


class KeyFileTooOpenError(KeyFileError):
    """The file belongs to another user, or other users can read or write it."""


class KeyFileMalformedError(KeyFileError):
    """The file is truncated or altered, or its costs are out of bounds."""


class PassphraseError(KeyFileError):
    """The passphrase, or its absence, does not fit the key file."""


class PassphraseNeededError(PassphraseError):
    """The file is encrypted, and no passphrase was given."""


class WrongPassphraseError(PassphraseError):
    """The passphrase is wrong or the encrypted file was altered; these can't be told apart."""
