"""The journal's errors.

    JournalError                 (a ParleyError)
      JournalBusyError           another process, or node, writes this journal
      JournalFailedError         it could not be written: a full disk, a lost file system
      JournalFormatError         bytes that are not of the journal's format

Readers of records report damage as findings, without raising these.
"""

from parley._node.errors import ParleyError


class JournalError(ParleyError):
    """The root of the journal's errors."""


class JournalBusyError(JournalError):
    """Raised when another process or node writes the journal of this node in this directory."""


class JournalFailedError(JournalError):
    """Raised when the journal can no longer be written; records written so far stay."""


class JournalFormatError(JournalError):
    """Raised for a file or record that isn't in the journal's format."""
