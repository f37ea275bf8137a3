"""File transfer between nodes, for `parley send` and `parley receive`.

A received file appears under its name only when it is complete and its SHA-256 matches the offer.
"""
