"""The errors of a journal.

    JournalError                 (a ParleyError)
      JournalBusyError           another process or node is writing the journal
      JournalFailedError         the journal cannot be written: a full disk, a lost file system
      JournalFormatError         bytes that are not in the journal's format

Readers report damaged records as findings and do not raise these errors.
"""

from parley._node.errors import ParleyError


class JournalError(ParleyError):
    """The base class of the journal's errors."""


class JournalBusyError(JournalError):
    """Raised when another process or node is writing this journal."""


class JournalFailedError(JournalError):
    """Raised when the journal can no longer be written. Records written so far are kept."""


class JournalFormatError(JournalError):
    """Raised for a file or record that isn't in the journal's format."""
