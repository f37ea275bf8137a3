"""The audit: verifies what a journal holds, and decrypts it with an auditor's key.

It trusts only what a valid seal vouches for.
"""

from parley._node.journal.audit.audit import Audit

__all__ = ["Audit"]
