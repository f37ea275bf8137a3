"""Data that is checked by type hints, on msgspec, which is imported with the first hint."""
