"""Data that is checked by type hints, on msgspec: an extra, imported with the first hint."""
