"""The registry of algorithms that can be negotiated, in the default order.

To add an algorithm, add an entry here. All tests of algorithms iterate over these tables.
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
    """Return `name` if it is an algorithm of `parameter`.

    Raises:
        AlgorithmNotInstalledError: the algorithm requires a package that is not installed.
        UnknownAlgorithmError: parameter or name is unknown.
    """
    if parameter not in NAMES:
        raise UnknownAlgorithmError(
            f"unknown parameter {parameter!r}: expected one of {', '.join(NAMES)}"
        )
    if name not in NAMES[parameter]:
        if (parameter, name) == ("hash", "blake3"):
            raise AlgorithmNotInstalledError("hash 'blake3' needs Parley's extra 'fast'")
        known = ", ".join(NAMES[parameter])
        raise UnknownAlgorithmError(f"unknown {parameter} {name!r}: expected one of {known}")
    return name


@dataclass(frozen=True)
class Suite:
    """The algorithms that a handshake agreed on, one name for each parameter (cell 4, section 5).

    Example:

        print(peer.suite)
        assert peer.suite.names()["cipher"] == peer.suite.cipher
    """

    kex: str
    signing: str
    hash: str
    cipher: str
    sealing: str

    def __post_init__(self) -> None:
        for parameter, name in self.names().items():
            require_name(parameter, name)

    def __str__(self) -> str:
        """The suite as it is shown in logs."""
        return ", ".join(f"{parameter} {name}" for parameter, name in self.names().items())

    @classmethod
    def of(cls, names: Mapping[str, str]) -> "Suite":
        """Return the suite with these names. Equal suites are the same object."""
        return _suite(*[names[parameter] for parameter in PARAMETERS])

    def names(self) -> dict[str, str]:
        """Return the names by parameter, in the order of `PARAMETERS`."""
        return {parameter: getattr(self, parameter) for parameter in PARAMETERS}

    # Cached, because the algorithms are looked up for every stream key.
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


@lru_cache(maxsize=144)  # there are 144, and unregistered names raise
def _suite(*names: str) -> Suite:
    return Suite(*names)


def all_suites() -> Iterator[Suite]:
    """Yield every possible suite, the default one first."""
    for names in product(*(NAMES[parameter] for parameter in PARAMETERS)):
        yield Suite(*names)
