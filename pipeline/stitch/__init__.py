"""What only the ranges together tell: seals that came in a later one, and what is between them.

Each range is verified on its own, from its own checkpoint. Here the end of each span of a direction
is compared with the beginning of the next. If they have the same chain value and place, the first
valid seal of a later span vouches for the events that were pending; if not, something is missing or
a checkpoint is forged. Only rows of spans, pending events and segments are looked at, a session's
at a time, and never events that are final.
"""

from parley._pipeline.stitch.rows import stitch

__all__ = ["stitch"]
