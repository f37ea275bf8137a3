"""Stitching: checks that need several ranges, such as seals in a later range.

Each range is verified from its own checkpoint. Stitching compares the end of each span of a
direction with the beginning of the next. If chain value and place match, the first valid seal of a
later span covers the pending events. Otherwise events are missing or a checkpoint is forged. Only
rows of spans, pending events and segments are read, one session at a time.
"""

from parley._pipeline.stitch.rows import stitch

__all__ = ["stitch"]
