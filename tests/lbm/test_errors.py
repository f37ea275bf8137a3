"""Tests of lbm/errors.py: one root, which is a ValueError."""

import pytest

from parley._lbm.codec import decode
from parley._lbm.errors import LbmDecodeError, LbmEncodeError, LbmError


def test_errors_have_one_root() -> None:
    assert issubclass(LbmError, ValueError)
    assert issubclass(LbmDecodeError, LbmError)
    assert issubclass(LbmEncodeError, LbmError)
    with pytest.raises(LbmDecodeError):
        decode(b"")
