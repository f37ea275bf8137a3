"""The registry of algorithms: what can be negotiated, in the default order.

This is data. A new algorithm is one entry here (and its room), and every test of
algorithms iterates over these tables.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product

from parley._crypto.ciphers import (
    AES_256_GCM,
    CHACHA20_POLY1305,
    XCHACHA20_POLY1305,
    CipherAlgorithm,
)
from parley._crypto.errors import AlgorithmNotInstalledError, UnknownAlgorithmError
from parley._crypto.hashing import BLAKE2B_256, OPTIONAL, SHA256, SHA512, HashAlgorithm
from parley._crypto.key_exchange import X25519, X25519_MLKEM768, KexAlgorithm
from parley._crypto.signing import ECDSA_P256, ED25519, ML_DSA_65, SigningAlgorithm

KEX: dict[str, KexAlgorithm] = {a.name: a for a in (X25519_MLKEM768, X25519)}
SIGNING: dict[str, SigningAlgorithm] = {a.name: a for a in (ED25519, ML_DSA_65, ECDSA_P256)}
HASHES: dict[str, HashAlgorithm] = {a.name: a for a in (*OPTIONAL, SHA256, BLAKE2B_256, SHA512)}
CIPHERS: dict[str, CipherAlgorithm] = {
    a.name: a for a in (AES_256_GCM, CHACHA20_POLY1305, XCHACHA20_POLY1305)
}
SEALINGS = ("chain", "each")

# In the order of their keys 1..5 in cells 3 and 4.
PARAMETERS = ("kex", "signing", "hash", "cipher", "sealing")

NAMES: Mapping[str, tuple[str, ...]] = {
    "kex": tuple(KEX),
    "signing": tuple(SIGNING),
    "hash": tuple(HASHES),
    "cipher": tuple(CIPHERS),
    "sealing": SEALINGS,
}


def require_name(parameter: str, name: str) -> str:
    """Return `name` if it is registered for `parameter`, else raise UnknownAlgorithmError.

    It is an AlgorithmNotInstalledError if only a package is missing.
    """
    if parameter not in NAMES:
        raise UnknownAlgorithmError(f"there is no parameter {parameter!r}: {', '.join(NAMES)}")
    if name not in NAMES[parameter]:
        if (parameter, name) == ("hash", "blake3"):
            raise AlgorithmNotInstalledError("hash 'blake3' needs Parley's extra 'fast'")
        known = ", ".join(NAMES[parameter])
        raise UnknownAlgorithmError(f"there is no {parameter} {name!r}: {known}")
    return name


@dataclass(frozen=True)
class Suite:
    """One name for each parameter: what a handshake agreed on (cell 4)."""

    kex: str
    signing: str
    hash: str
    cipher: str
    sealing: str

    def __post_init__(self) -> None:
        for parameter, name in self.names().items():
            require_name(parameter, name)

    def __str__(self) -> str:
        """The suite as log lines name it."""
        return ", ".join(f"{parameter} {name}" for parameter, name in self.names().items())

    @classmethod
    def of(cls, names: Mapping[str, str]) -> "Suite":
        """Return the suite of parameter -> name, one object for all its connections."""
        return _suite(*[names[parameter] for parameter in PARAMETERS])

    def names(self) -> dict[str, str]:
        """Return parameter -> name, in the order of `PARAMETERS`."""
        return {parameter: getattr(self, parameter) for parameter in PARAMETERS}

    # Cached, since the algorithms are looked up for every stream key.
    @cached_property
    def kex_algorithm(self) -> KexAlgorithm:
        """The key exchange."""
        return KEX[self.kex]

    @cached_property
    def signing_algorithm(self) -> SigningAlgorithm:
        """The signature algorithm of the Proofs and seals."""
        return SIGNING[self.signing]

    @cached_property
    def hash_algorithm(self) -> HashAlgorithm:
        """The hash of transcript, key schedule and chains."""
        return HASHES[self.hash]

    @cached_property
    def cipher_algorithm(self) -> CipherAlgorithm:
        """The AEAD of every stream."""
        return CIPHERS[self.cipher]


@lru_cache(maxsize=144)  # there are 144, and what is not registered raises
def _suite(*names: str) -> Suite:
    return Suite(*names)


def all_suites() -> Iterator[Suite]:
    """Yield every suite that can be agreed on, the default one first."""
    for names in product(*(NAMES[parameter] for parameter in PARAMETERS)):
        yield Suite(*names)
