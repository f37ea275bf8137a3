"""The codec's rules, one accepted and one refused case each (section 3)."""

import pytest

from lbm.codec import decode, encode
from lbm.errors import LbmDecodeError


def test_a_small_payload() -> None:
    payload = encode({23: 5000, 21: "echo", 22: b"\x00"})
    assert payload.hex() == "a315646563686f16410017191388"
    assert decode(payload) == {21: "echo", 22: b"\x00", 23: 5000}


@pytest.mark.parametrize("text", ["", "a1", "a1181701", "a1010100", "a201000100", "80", "a1617801"])
def test_refused(text: str) -> None:
    with pytest.raises(LbmDecodeError):
        decode(bytes.fromhex(text))
