"""What can go wrong with a journal.

    JournalError                 (a ParleyError)
      JournalBusyError           another process, or node, writes this journal
      JournalFailedError         it could not be written: a full disk, a lost file system
      JournalFormatError         bytes that are no journal, where one was asked for

Readers of records report what is damaged as findings; they raise none of these for it.
"""

from node.errors import ParleyError


class JournalError(ParleyError):
    """The root of the journal's errors."""


class JournalBusyError(JournalError):
    """The journal of this node in this directory is being written by somebody else."""


class JournalFailedError(JournalError):
    """The journal cannot be written any more; what it has is kept as it is."""


class JournalFormatError(JournalError):
    """A file or record that is not of the journal's format."""
