"""What a node says that it offers (`parley.topics`, docs/protocol.md section 9), asked for and
checked: it is another node's word, and may be anything.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from parley._lbm.codec import Encodable
from parley._node.errors import CallRefused, ParleyError
from parley._node.protocol.codes import ResultCode

if TYPE_CHECKING:
    from parley._node.peer.peer import Peer

TOPICS_CALL: Final = "parley.topics"
KINDS: Final = ("call", "topic", "event", "stream")  # as people are shown them
# Of one node, in all: answers that are asked for, and what is in them.
MOST_ANSWERS: Final = 64
MOST_OFFERS: Final = 8_192

_FLAGS: Final = ("items", "once", "remembers", "writable")


@dataclass(frozen=True, kw_only=True)
class ToldOffer:
    """One thing that a node offers. `takes` and `gives` are JSON Schema, None where it says nothing
    of them; `flags` are what else it says is so: `items`, `once`, `remembers`, `writable`."""

    kind: str
    name: str
    namespace: str = ""
    doc: str = ""
    takes: Any = None
    gives: Any = None
    flags: tuple[str, ...] = ()


async def ask_offers(
    peer: "Peer", prefix: str = "", *, brief: bool = False, timeout: float
) -> list[ToldOffer]:
    """All that a node offers to us whose name begins with `prefix`; `timeout` is seconds for each
    of its answers. With `brief` it is not asked for more than names.

    Raises:
        CallRefused: it does not tell. ParleyError: its answer is none, or does not end.
    """
    wanted: dict[str, Encodable] = {"prefix": prefix, "brief": brief}
    offers: list[ToldOffer] = []
    for _ in range(MOST_ANSWERS):
        try:
            answer = await peer.call(TOPICS_CALL, wanted, timeout=timeout)
        except CallRefused as refused:
            if refused.code != ResultCode.TOPIC_NOT_FOUND:
                raise
            raise CallRefused(
                refused.code,
                f"{peer} does not publish a list of its topics; its program can do so with "
                "node.offer_topics()",
            ) from refused
        found, more = _read(answer)
        offers += found
        if not more or not found:
            return offers
        if len(offers) > MOST_OFFERS:
            break
        last = found[-1]
        wanted["after"] = [last.kind, last.name, last.namespace]
    raise ParleyError(f"it says that it offers more than {len(offers):,} things: give a PREFIX")


def _read(answer: object) -> tuple[list[ToldOffer], bool]:
    match answer:
        case {"offers": list(offers), "more": bool(more)}:
            return [_offer(one) for one in offers], more
    raise ParleyError(f"what it answers to {TOPICS_CALL} is not what it offers")


def _offer(told: object) -> ToldOffer:
    match told:
        case {"kind": str(kind), "name": str(name)}:
            assert isinstance(told, Mapping)
            return ToldOffer(
                kind=kind,
                name=name,
                namespace=_text(told, "namespace"),
                doc=_text(told, "doc"),
                takes=_schema(_text(told, "takes")),
                gives=_schema(_text(told, "gives")),
                flags=tuple(flag for flag in _FLAGS if told.get(flag) is True),
            )
    raise ParleyError(f"something that it answers to {TOPICS_CALL} has no kind and name")


def _text(told: Mapping[Any, Any], key: str) -> str:
    value = told.get(key)
    return value if isinstance(value, str) else ""


def _schema(text: str) -> Any:
    """The JSON Schema of a text; None if it is none."""
    try:
        schema = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    return schema if isinstance(schema, dict) else None
