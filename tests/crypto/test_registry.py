"""Tests of crypto/registry.py: the tables agree with each other and with section 5."""

import pytest

from parley._crypto.errors import CryptoError, UnknownAlgorithmError
from parley._crypto.registry import (
    CIPHERS,
    KEX,
    NAMES,
    PARAMETERS,
    SEALINGS,
    SIGNING,
    Suite,
    all_suites,
    require_name,
)


def test_names_and_their_default_order() -> None:
    assert NAMES == {
        "kex": ("x25519-mlkem768", "x25519"),
        "signing": ("ed25519", "ml-dsa-65", "ecdsa-p256"),
        "hash": ("blake3", "sha256", "blake2b-256", "sha512"),
        "cipher": ("aes-256-gcm", "chacha20-poly1305", "xchacha20-poly1305"),
        "sealing": ("chain", "each"),
    }
    assert tuple(NAMES) == PARAMETERS
    assert NAMES["sealing"] == SEALINGS


def test_sizes_of_section_4_and_5() -> None:
    shares = {k.name: (k.initiator_share_size, k.responder_share_size) for k in KEX.values()}
    assert shares == {"x25519-mlkem768": (1216, 1120), "x25519": (32, 32)}
    signatures = {s.name: (s.public_size, s.signature_size) for s in SIGNING.values()}
    assert signatures == {"ed25519": (32, 64), "ml-dsa-65": (1952, 3309), "ecdsa-p256": (65, 64)}
    assert {c.name: c.nonce_size for c in CIPHERS.values()} == {
        "aes-256-gcm": 12,
        "chacha20-poly1305": 12,
        "xchacha20-poly1305": 24,
    }
    assert all(c.tag_size == 16 and c.key_size == 32 for c in CIPHERS.values())


def test_suites_are_all_combinations_the_default_first() -> None:
    suites = list(all_suites())
    assert len(set(suites)) == len(suites) == 2 * 3 * 4 * 3 * 2
    assert suites[0].names() == {parameter: NAMES[parameter][0] for parameter in PARAMETERS}


@pytest.mark.parametrize("parameter", PARAMETERS)
def test_unknown_names_are_refused(parameter: str) -> None:
    names = next(all_suites()).names()
    for bad in ("", "none", names[parameter].upper(), names[parameter] + " "):
        with pytest.raises(UnknownAlgorithmError):
            require_name(parameter, bad)
        with pytest.raises(UnknownAlgorithmError):
            Suite(**{**names, parameter: bad})
    assert require_name(parameter, names[parameter]) == names[parameter]


def test_unknown_parameters_are_refused() -> None:
    with pytest.raises(UnknownAlgorithmError) as caught:
        require_name("compression", "none")
    assert isinstance(caught.value, CryptoError)
    assert isinstance(caught.value, ValueError)
