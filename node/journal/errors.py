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
    """Another process, or node, writes the journal of this node in this directory."""


class JournalFailedError(JournalError):
    """The journal cannot be written any more; what was written stays as it is."""


class JournalFormatError(JournalError):
    """A file or record that is not of the journal's format."""
