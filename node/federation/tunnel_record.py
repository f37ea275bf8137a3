"""What a hop records of a tunnel that it joined, when that is over: evidence for its journal."""

from dataclasses import dataclass

from parley._crypto.identity import NodeId


@dataclass(frozen=True, slots=True)
class TunnelRecord:
    """One tunnel, as the server at `hop` of its path saw it: 0 where an account dialled it to here,
    its home, which wrote the path.

    `trace` is its 16 random bytes, the same at all hops; `length` is how many ids the path has, of
    which the last records nothing; `before` and `after` are the neighbours that it joined; `began`
    and `ended` seconds since 1970; `forward` and `back` the bytes of Data that came from `before`
    and from `after`.
    """

    trace: bytes
    hop: int
    length: int
    before: NodeId
    after: NodeId
    began: float
    ended: float
    forward: int
    back: int
