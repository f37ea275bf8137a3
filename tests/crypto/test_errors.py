"""Tests of crypto/errors.py: one root, and the tree that the callers rely on."""

import inspect

from parley._crypto import errors


def test_every_error_has_the_one_root() -> None:
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass)]
    assert len(classes) > 10
    assert all(issubclass(c, errors.CryptoError) for c in classes)


def test_the_tree() -> None:
    assert issubclass(errors.InvalidKeyError, errors.SignatureError)
    assert issubclass(errors.UnknownAlgorithmError, ValueError)
    assert issubclass(errors.WrongSizeError, ValueError)
    for name in ("Unreadable", "Exists", "TooOpen", "Malformed"):
        assert issubclass(getattr(errors, f"KeyFile{name}Error"), errors.KeyFileError)
    for error in (errors.PassphraseNeededError, errors.WrongPassphraseError):
        assert issubclass(error, errors.PassphraseError)
        assert issubclass(error, errors.KeyFileError)
