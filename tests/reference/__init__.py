"""A second reading of the protocol document, for tests only.

Written from the document alone: it imports nothing of lbm, crypto or node, so
an error that both share must be an error of the document. Plain and slow.
"""
