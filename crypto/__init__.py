"""Algorithms, keys, the key schedule, the hash chain and identities of Parley.

Only this package imports `cryptography`, `nacl` and `blake3`. The protocol's own cryptography is
limited to the composition in docs/protocol.md.
"""

if not __name__.startswith("parley."):
    raise ImportError("import parley._crypto", name=__name__)
