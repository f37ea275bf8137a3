"""The journal: every event of a node's encrypted connections, kept so that others can check it.

The format is docs/journal.md, byte for byte.
"""
