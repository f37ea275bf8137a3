"""What only the ranges together tell: seals that came in a later one, and what is between.

Ranges are verified each from its own checkpoint. Here the end of each span of a direction
is compared with the beginning of the next: if they are the same chain value and place, the
first valid seal of a later span vouches for the events that were pending; if not, something
is missing or a checkpoint is forged. One rule: only rows of spans, pending events and
segments are looked at, never those of events that are final; and of those a session's at a
time.
"""

from pipeline.stitch.rows import stitch

__all__ = ["stitch"]
