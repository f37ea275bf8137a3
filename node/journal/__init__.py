"""The journal: a record of all events of a node's encrypted connections, which others can verify.

docs/journal.md defines the format byte for byte.
"""
