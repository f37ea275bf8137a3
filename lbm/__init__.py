"""A canonical CBOR profile (labelled binary maps, LBM), the encoding of every event's payload.

Each value has exactly one encoding, and decoding rejects all others. This package imports no other
package of Parley. Key numbers are in `lbm.keys`, typed reading in `lbm.fields`.
"""

if not __name__.startswith("parley."):
    raise ImportError("import parley._lbm", name=__name__)
