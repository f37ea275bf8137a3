"""A second implementation of the protocol, for tests only.

It is written from the document alone and doesn't import lbm, crypto or node, so that an error that
both implementations share must be an error of the document. It is simple and slow.
"""
