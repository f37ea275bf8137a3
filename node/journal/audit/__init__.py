"""The audit: verifies what a journal holds and reads it for who may.

It trusts only what a valid seal vouches for.
"""

from node.journal.audit.audit import Audit

__all__ = ["Audit"]
