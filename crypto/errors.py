"""The errors of `crypto`. Messages name sizes and algorithms, never a secret.

CryptoError
├── DecryptError                 a blob that does not open under this key and counter
├── CounterExhaustedError        a stream key that has no nonce left
├── SignatureError               a signature or seal that does not verify
│   └── InvalidKeyError          a signing key, public or private, that is malformed or weak
├── KeyExchangeError             a malformed share, or an ephemeral key used twice
├── WrongSizeError               a cipher's key or nonce, or an output, of a wrong size
├── UnknownAlgorithmError        a name that is not in the registry
│   └── AlgorithmNotInstalledError   nor would be without a package that is not installed
├── IdentityError                keys and bindings that do not make an identity, a bad node id
└── KeyFileError
    ├── KeyFileUnreadableError   absent, not a regular file, or not to be read or written
    ├── KeyFileExistsError       a file is there already; key files are never overwritten
    ├── KeyFileTooOpenError      other users may read or write it
    ├── KeyFileMalformedError    truncated, altered, or costs out of bounds
    └── PassphraseError
        ├── PassphraseNeededError
        └── WrongPassphraseError
"""

from parley._lbm.errors import ParleyError


class CryptoError(ParleyError):
    """Root of the errors of `crypto`."""


class DecryptError(CryptoError):
    """A blob does not decrypt: another key, counter or associated data, or it was altered."""


class CounterExhaustedError(CryptoError):
    """A stream key has used its last counter (2^64 - 1); only a key update helps."""


class SignatureError(CryptoError):
    """A signature or seal is not the one this key makes over this message."""


class InvalidKeyError(SignatureError):
    """A signing key has the wrong size, is not a point of its curve, or is weak."""


class KeyExchangeError(CryptoError):
    """A key share is malformed or weak, or an ephemeral key was asked to work twice."""


class WrongSizeError(CryptoError, ValueError):
    """A key or nonce is not the cipher's size, or a derivation cannot give that many bytes."""


class UnknownAlgorithmError(CryptoError, ValueError):
    """No algorithm of this name is registered for this parameter."""


class AlgorithmNotInstalledError(UnknownAlgorithmError):
    """The protocol has this algorithm; the package that computes it is not installed here."""


class IdentityError(CryptoError):
    """Keys and bindings do not make up an identity, or a text is not a node id."""


class KeyFileError(CryptoError):
    """A key file cannot be used; the subclass says why."""


class KeyFileUnreadableError(KeyFileError):
    """The file is absent, is not a regular file, or the system refuses access."""


class KeyFileExistsError(KeyFileError):
    """There is a file at that path already; a key file is never overwritten."""


class KeyFileTooOpenError(KeyFileError):
    """The file belongs to, or can be read or written by, somebody else."""


class KeyFileMalformedError(KeyFileError):
    """The file is truncated or altered, or its costs are out of bounds."""


class PassphraseError(KeyFileError):
    """The passphrase given (or not given) does not open or cannot seal the file."""


class PassphraseNeededError(PassphraseError):
    """The file is sealed and no passphrase was given."""


class WrongPassphraseError(PassphraseError):
    """The passphrase is wrong, or the sealed file was altered: the two look alike."""
