"""The journal: every event of a node's encrypted connections, kept so that others can check it.

docs/journal.md defines the format, byte for byte.
"""
