"""The errors of the LBM floor.

One root, one type for each direction: whatever the input, decoding raises
`LbmDecodeError` and encoding `LbmEncodeError`, and nothing else. They carry no
wire code; the floors above decide what a malformed payload means for them.

    ValueError
      LbmError
        LbmDecodeError    bytes that are not LBM, or a cell of the wrong type
        LbmEncodeError    a value that has no encoding
"""


class LbmError(ValueError):
    """The root of this package's errors."""


class LbmDecodeError(LbmError):
    """The bytes are not a well-formed payload, or a cell has a wrong type or range."""


class LbmEncodeError(LbmError):
    """The value has no LBM encoding."""
