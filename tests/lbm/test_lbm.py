"""The package as others see it."""

import pytest

import lbm


def test_every_public_name_is_there() -> None:
    assert sorted(set(lbm.__all__)) == sorted(lbm.__all__)
    assert [name for name in lbm.__all__ if not hasattr(lbm, name)] == []


def test_errors_have_one_root() -> None:
    assert issubclass(lbm.LbmError, ValueError)
    assert issubclass(lbm.LbmDecodeError, lbm.LbmError)
    assert issubclass(lbm.LbmEncodeError, lbm.LbmError)
    with pytest.raises(lbm.LbmDecodeError):
        lbm.decode(b"")
