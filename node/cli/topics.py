"""`parley topics`: list the calls, topics, events and streams that a node offers.

The response (`parley.topics`, docs/protocol.md section 9) comes from another node, so it is checked
and limited. `--schema` prints one JSON Schema document that bundles all schemas (JSON Schema
2020-12, section 9.3).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import anyio

from parley._crypto.identity import NodeId
from parley._lbm.codec import Encodable
from parley._node.cli.completion.offered_names import store_names
from parley._node.cli.first_contact import connect
from parley._node.cli.options import SHARED, NodeOptions, apply_context
from parley._node.cli.output import Output
from parley._node.cli.run import make_node, run
from parley._node.errors import CallRefused, ConfigError, ParleyError
from parley._node.logs import one_line
from parley._node.protocol.codes import ResultCode
from parley._node.transport.address import Address
from parley._node.trust.policies import FirstUse, Known, TrustPolicy, known_peers_of, parse_trust

if TYPE_CHECKING:
    from parley._node.peer.peer import Peer


# Maximum depth, and maximum length of the description of one type.
_DEEPEST: Final = 4
LONGEST: Final = 120
_WORDS: Final = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "true or false",
    "null": "null",
    "object": "map",
    "array": "list",
}


def type_name(schema: Any) -> str:
    """Return a short description of a schema, at most `LONGEST` characters."""
    return _short(_words(schema, _DEEPEST))


def fields_of(schema: Any) -> Iterator[tuple[str, str, str]]:
    """Yield name, fields and description of each model that a schema defines."""
    definitions = schema.get("$defs") if isinstance(schema, Mapping) else None
    for name, model in (definitions if isinstance(definitions, Mapping) else {}).items():
        if isinstance(model, Mapping):
            text = model.get("description")
            yield str(name), _short(_fields(model)), text if isinstance(text, str) else ""


def _fields(model: Mapping[str, Any]) -> str:
    properties, required = model.get("properties"), model.get("required")
    if not isinstance(properties, Mapping):
        return _words(model, _DEEPEST)
    needed = required if isinstance(required, list) else []
    return ", ".join(
        f"{name}{'' if name in needed else '?'}: {_words(field, _DEEPEST)}"
        for name, field in properties.items()
    )


def _words(schema: Any, levels: int) -> str:
    if not isinstance(schema, Mapping) or not levels:
        return "anything" if levels else ".."
    below = levels - 1
    match schema:
        case {"$ref": str(place)}:
            return place.rpartition("/")[2]
        case {"enum": list(values)}:
            return " or ".join(map(repr, values))
        case {"const": value}:
            return repr(value)
        case {"anyOf": list(choices)} | {"oneOf": list(choices)}:
            return " or ".join(dict.fromkeys(_words(one, below) for one in choices))
        case {"type": "string", "format": str(kind)}:
            return "bytes" if kind == "binary" else kind
        case {"type": "array", "items": Mapping() as items}:
            return f"[{_words(items, below)}]"
        case {"type": "array", "prefixItems": list(items)}:
            return f"[{', '.join(_words(one, below) for one in items)}]"
        case {"type": "object", "additionalProperties": Mapping() as values}:
            return f"{{{_words(values, below)}}}"
        case {"title": str(title), "properties": Mapping()}:
            return title
        case {"type": str(kind)}:
            return _WORDS.get(kind, kind)
    return "anything"


def _short(words: str) -> str:
    return words if len(words) <= LONGEST else words[: LONGEST - 2] + ".."


TOPICS_CALL: Final = "parley.topics"
KINDS: Final = ("call", "topic", "event", "stream")  # in display order
# Limits for one node: the number of requests, and of offers in the responses.
MOST_ANSWERS: Final = 64
MOST_OFFERS: Final = 8_192

_FLAGS: Final = ("items", "once", "remembers", "writable")


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A call, topic, event or stream of a node. `takes` and `gives` are JSON Schema or None;
    `flags` are some of `items`, `once`, `remembers`, `writable`."""

    kind: str
    name: str
    namespace: str = ""
    doc: str = ""
    takes: Any = None
    gives: Any = None
    flags: tuple[str, ...] = ()


async def fetch_offers(
    peer: "Peer", prefix: str = "", *, brief: bool = False, timeout: float
) -> list[Offer]:
    """Fetch a node's offers whose names begin with `prefix`. `timeout` applies to each response.

    Raises:
        CallRefused: the node doesn't publish them.
        ParleyError: an invalid or endless response.
    """
    wanted: dict[str, Encodable] = {"prefix": prefix, "brief": brief}
    offers: list[Offer] = []
    for _ in range(MOST_ANSWERS):
        try:
            answer = await peer.call(TOPICS_CALL, wanted, timeout=timeout)
        except CallRefused as refused:
            if refused.code != ResultCode.TOPIC_NOT_FOUND:
                raise
            raise CallRefused(
                refused.code,
                f"cannot list the topics of {peer}: it does not publish the list; its program "
                "can enable it with node.offer_topics()",
            ) from refused
        found, more = _read(answer)
        offers += found
        if not more or not found:
            return offers
        if len(offers) > MOST_OFFERS:
            break
        last = found[-1]
        wanted["after"] = [last.kind, last.name, last.namespace]
    raise ParleyError(f"cannot list more than {len(offers):,} topics; give a PREFIX")


def _read(answer: object) -> tuple[list[Offer], bool]:
    match answer:
        case {"offers": list(offers), "more": bool(more)}:
            return [_offer(one) for one in offers], more
    raise ParleyError(f"cannot list the topics: the node sent an invalid response to {TOPICS_CALL}")


def _offer(told: object) -> Offer:
    match told:
        case {"kind": str(kind), "name": str(name)}:
            assert isinstance(told, Mapping)
            return Offer(
                kind=kind,
                name=name,
                namespace=_text(told, "namespace"),
                doc=_text(told, "doc"),
                takes=_schema(_text(told, "takes")),
                gives=_schema(_text(told, "gives")),
                flags=tuple(flag for flag in _FLAGS if told.get(flag) is True),
            )
    raise ParleyError(
        f"cannot list the topics: an entry in the response to {TOPICS_CALL} has no kind or name"
    )


def _text(told: Mapping[Any, Any], key: str) -> str:
    value = told.get(key)
    return value if isinstance(value, str) else ""


def _schema(text: str) -> Any:
    """Parse a JSON Schema; None if it is invalid."""
    try:
        schema = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    return schema if isinstance(schema, dict) else None


def known_offers(address: str, params: dict[str, Any], seconds: float) -> list[Offer]:
    """Fetch the offers of a known node; `params` are the options on the typed command line.

    Raises:
        ParleyError: the node is unknown, or doesn't answer in time.
    """
    given = {name: params[name] for name in SHARED if params.get(name) is not None}
    place = {"address": address}
    options = apply_context(NodeOptions(**given), place)
    target = Address.parse(place["address"])
    policy = parse_trust(options.trust or "known")
    if isinstance(policy, FirstUse):
        policy = Known(policy.known_peers)
    return anyio.run(_ask, options, target, policy, seconds)


async def _ask(
    options: NodeOptions, target: Address, policy: TrustPolicy, seconds: float
) -> list[Offer]:
    there = target.node_id or _on_record(policy, target)
    if there is None:
        raise ParleyError(f"cannot complete names of {target.place!r}: no node is known there")
    identity = options.identity()
    if there == identity.node_id:
        identity = options.temporary_identity()  # a node cannot connect to itself
    with anyio.fail_after(seconds):
        async with make_node(options, identity=identity) as node:
            peer = await node.connect(str(target), trust=policy)
            return await fetch_offers(peer, timeout=seconds)


def _on_record(policy: TrustPolicy, target: Address) -> NodeId | None:
    known_peers = known_peers_of(policy)
    peer = None if known_peers is None else known_peers.by_name(target.place)
    return None if peer is None else peer.node_id


_TITLES = {
    "call": "Calls",
    "topic": "Topics",
    "event": "Named events",
    "stream": "Streams",
}
_SAID = {
    "items": "in items",
    "once": "supports once",
    "remembers": "keeps recent notes",
    "writable": "accepts notes",
}


def topics(
    options: NodeOptions,
    address: str,
    prefix: str,
    schema: bool,
    timeout: float,
) -> None:
    if schema and options.as_json:
        raise ConfigError(
            "cannot use --schema with --json: --schema prints JSON already; leave --json out"
        )
    if not timeout > 0:  # also rejects NaN
        raise ConfigError(f"cannot use --timeout {timeout:g}: it must be more than 0 seconds")

    async def asking(options: NodeOptions, out: Output) -> None:
        async with connect(options, out, address) as peer:
            offers = await fetch_offers(peer, prefix, timeout=timeout)
            node_id = str(peer.node_id) if peer.node_id else None
        if not prefix:
            store_names(address, offers)
        if schema:
            out.print(json.dumps(schema_document(offers, node_id), indent=2, ensure_ascii=False))
            return
        for offer in offers:
            out.event("offer", **offer_fields(offer))
        for line in offer_lines(offers):
            out.print(line)
        out.done(node_id=node_id, count=len(offers))

    run(options, asking)


def offer_fields(offer: Offer) -> dict[str, Any]:
    return {
        "kind": offer.kind,
        "name": offer.name,
        "namespace": offer.namespace or None,
        "doc": offer.doc or None,
        "takes": offer.takes,
        "gives": offer.gives,
        **{flag: flag in offer.flags for flag in _SAID},
    }


def offer_lines(offers: list[Offer]) -> Iterator[str]:
    """Yield lines for people: the offers by kind, followed by the types that they use."""
    if not offers:
        yield "the node offers you no calls, topics or streams"
    models: dict[str, tuple[str, str]] = {}
    for kind in (*KINDS, *sorted({one.kind for one in offers} - set(KINDS))):
        of_kind = [one for one in offers if one.kind == kind]
        if of_kind:
            yield _TITLES.get(kind, one_line(kind))
        for offer in of_kind:
            yield f"  {one_line(_title(offer))}"
            for line in offer.doc.splitlines():
                yield f"      {one_line(line)}".rstrip()
            for schema in (offer.takes, offer.gives):
                models.update((name, (fields, text)) for name, fields, text in fields_of(schema))
    if models:
        yield "Types"
    for name, (fields, text) in sorted(models.items()):
        yield f"  {one_line(f'{name} {{{fields}}}')}"
        for line in text.splitlines():
            yield f"      {one_line(line)}".rstrip()


def _title(offer: Offer) -> str:
    name = f"{offer.namespace}/{offer.name}" if offer.namespace else offer.name
    takes = "" if offer.takes is None else f" ({type_name(offer.takes)})"
    gives = "" if offer.gives is None else f" -> {type_name(offer.gives)}"
    if offer.kind == "topic":
        gives = gives.replace(" -> ", ": ", 1)
    said = ", ".join(_SAID[flag] for flag in offer.flags)
    return f"{name}{takes}{gives}{f'  [{said}]' if said else ''}"


def schema_document(offers: list[Offer], node_id: str | None) -> dict[str, Any]:
    """Return a document of all schemas, each under `KIND/NAME/takes` or `KIND/NAME/gives`."""
    definitions: dict[str, Any] = {}
    for offer in offers:
        place = f"{offer.namespace}/{offer.name}" if offer.namespace else offer.name
        for side, schema in (("takes", offer.takes), ("gives", offer.gives)):
            if schema is not None:
                key = f"{offer.kind}/{place}/{side}"
                own = {"$id": f"parley:{quote(key)}"}
                doc = {"description": offer.doc} if offer.doc else {}
                definitions[key] = {**own, **doc, **schema, **own}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Topics of {node_id or 'a node'}",
        "$defs": definitions,
    }
