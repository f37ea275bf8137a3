"""The data pipeline over the nodes' journals.

The package holds its place in the distribution; its jobs come with the journal.
It knows of no I/O shell of the node.
"""
