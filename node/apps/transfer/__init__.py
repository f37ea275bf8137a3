"""Files from one node to another: `parley send` and `parley receive`, and their parts.

What arrives is either the whole file that was offered, by its SHA-256, or not there under its name.
"""
