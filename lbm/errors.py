"""The root of all errors, and the errors of the codec.

    ParleyError
      LbmError              (also ValueError)
        LbmDecodeError      bytes that aren't LBM, or a cell of the wrong type
        LbmEncodeError      a value that has no encoding

Decoding raises LbmDecodeError and nothing else, encoding LbmEncodeError.
"""


class ParleyError(Exception):
    """Root of all errors of this package: catch it to catch every failure of Parley."""


class LbmError(ParleyError, ValueError):
    """Root of the codec's errors."""


class LbmDecodeError(LbmError):
    """The bytes are not a well-formed payload, or a cell has a wrong type or range."""


class LbmEncodeError(LbmError):
    """The value has no LBM encoding."""
