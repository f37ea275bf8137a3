"""Stitching: what takes several ranges together, such as seals that came in a later one.

Each range is verified from its own checkpoint. Here the end of each span of a direction is compared
with the beginning of the next. If they have the same chain value and place, the first valid seal of
a later span covers the pending events; if not, something is missing or a checkpoint is forged. Only
rows of spans, pending events and segments are read, one session at a time.
"""

from parley._pipeline.stitch.rows import stitch

__all__ = ["stitch"]
