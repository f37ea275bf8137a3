"""The audit: verifies what a journal holds and reads it for who may.

It trusts nothing in the journal but what a valid seal vouches for.
"""

from node.journal.audit.audit import Audit

__all__ = ["Audit"]
