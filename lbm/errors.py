"""The base class of all errors, and the errors of the codec.

    ParleyError
      LbmError              (also ValueError)
        LbmDecodeError      bytes that aren't LBM, or a cell of the wrong type
        LbmEncodeError      a value that has no encoding

Decoding raises only LbmDecodeError, encoding only LbmEncodeError.
"""


class ParleyError(Exception):
    """Base class of all errors of Parley."""


def os_reason(error: OSError) -> str:
    """Return the reason of an OSError, even if it has no `strerror`."""
    return error.strerror or str(error) or type(error).__name__


class LbmError(ParleyError, ValueError):
    """Base class of the codec's errors."""


class LbmDecodeError(LbmError):
    """The bytes are not a valid payload, or a cell has a wrong type or range."""


class LbmEncodeError(LbmError):
    """The value has no LBM encoding."""
