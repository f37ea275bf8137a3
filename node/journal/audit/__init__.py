"""The audit: verifies the contents of a journal, and decrypts it with an auditor's key.

It trusts only records that a valid seal covers.
"""

from parley._node.journal.audit.audit import Audit

__all__ = ["Audit"]
