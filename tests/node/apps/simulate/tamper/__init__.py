"""Tampering with written journals as a forger would, and a list of what was done.

Everything that a forger can make right is made right: lengths, CRCs, the segment end and
its blocks. The list is for comparing; nothing that checks journals reads it.
"""
