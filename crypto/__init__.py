"""Algorithms, keys, the key schedule, the hash chain and identities of Parley.

The only package that imports `cryptography`, `nacl` and `blake3`, and no new cryptography
beyond the composition in docs/protocol.md.
"""

if not __name__.startswith("parley."):
    raise ImportError("import parley._crypto", name=__name__)
