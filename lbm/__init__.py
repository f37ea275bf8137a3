"""Labelled binary maps: the payloads of every event, a strict subset of CBOR.

One value has one encoding, and decoding refuses all others. The package imports
nothing of the others; key numbers are in `lbm.keys`, typed reading in `lbm.fields`.
"""

if not __name__.startswith("parley."):
    raise ImportError("import parley._lbm", name=__name__)
