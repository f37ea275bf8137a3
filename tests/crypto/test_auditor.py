"""Tests of crypto/auditor.py: boxes that only one key decrypts, and one spelling of each key."""

import nacl.bindings
import pytest

from parley._crypto.auditor import BOX_OVERHEAD, AuditorKey, AuditorPrivateKey
from parley._crypto.errors import CryptoError, DecryptError, InvalidKeyError
from parley._crypto.identity import Identity

KEY = AuditorPrivateKey(bytes(range(32)))
SECRET = b"a secret of a session"


@pytest.mark.parametrize("secret", [b"", SECRET, bytes(64)])
def test_a_box_is_opened_by_its_auditor_alone(secret: bytes) -> None:
    box = KEY.public.seal(secret)
    assert len(box) == len(secret) + BOX_OVERHEAD
    assert KEY.open(box) == secret
    assert KEY.public.seal(secret) != box  # a new ephemeral key each time
    with pytest.raises(DecryptError):
        AuditorPrivateKey.create().open(box)


def test_a_box_is_libsodiums() -> None:
    public, private = nacl.bindings.crypto_box_seed_keypair(bytes(32))
    box = nacl.bindings.crypto_box_seal(SECRET, public)
    assert AuditorPrivateKey(private).open(box) == SECRET
    assert nacl.bindings.crypto_box_seal_open(AuditorKey(public).seal(SECRET), public, private)


def test_altered_and_truncated_boxes() -> None:
    box = KEY.public.seal(SECRET)
    for size in range(len(box)):
        with pytest.raises(DecryptError):
            KEY.open(box[:size])
    for position in range(len(box)):
        altered = bytearray(box)
        altered[position] ^= 1 << position % 7
        with pytest.raises(DecryptError):
            KEY.open(bytes(altered))


def test_a_key_has_one_spelling() -> None:
    text = KEY.public.text
    assert str(KEY.public) == text
    assert text == "parley-auditor-r5amllnwr4swesxfwikou5t2n3eu3au5hv5v4gwrxjxt4ijyfbpq"
    assert AuditorKey.parse(text) == KEY.public
    last = text[:-1] + chr(ord(text[-1]) + 1)  # spare bits that don't belong to the key
    bare = text.removeprefix("parley-auditor-")
    others = ["", text.upper(), f"{text}=", f" {text}", text[:-1], last, text[:15], bare]
    for wrong in [*others, Identity.create().node_id.text]:
        with pytest.raises(InvalidKeyError):
            AuditorKey.parse(wrong)


@pytest.mark.parametrize("wrong", [b"", bytes(31), bytes(33), bytes(32), b"\1" + bytes(31)])
def test_keys_that_are_none(wrong: bytes) -> None:
    with pytest.raises(InvalidKeyError):
        AuditorKey(wrong)
    with pytest.raises(CryptoError):
        AuditorKey.parse("parley-auditor-" + wrong.hex())


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_private_key_of_a_wrong_size(size: int) -> None:
    with pytest.raises(InvalidKeyError):
        AuditorPrivateKey(bytes(size))


def test_a_private_key_is_not_shown() -> None:
    shown = f"{KEY!r} {KEY}"
    assert KEY.public.text in shown
    assert KEY.private_bytes().hex() not in shown
    assert str(KEY.private_bytes()) not in shown
    assert repr(KEY.public) == f"AuditorKey({KEY.public.text})"
