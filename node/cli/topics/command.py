"""`parley topics`: what a node offers to whoever asks: calls, topics, events and streams.

For people a list; as JSON Schema one document, in which the schema of each is a resource of its own
(JSON Schema 2020-12, section 9.3, "bundling"), so that what it refers to is found inside it.
"""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from parley._node.cli.introduction import dialled
from parley._node.cli.options import NodeOptions
from parley._node.cli.output import Output
from parley._node.cli.run import run
from parley._node.cli.topics.offered_names import remember
from parley._node.cli.topics.offers import KINDS, ToldOffer, ask_offers
from parley._node.cli.topics.type_names import fields_of, type_name
from parley._node.errors import ConfigError
from parley._node.logs import one_line

_TITLES = {
    "call": "Calls",
    "topic": "Topics",
    "event": "Named events",
    "stream": "Streams",
}
_SAID = {
    "items": "item by item",
    "once": "may be made once",
    "remembers": "remembers its last notes",
    "writable": "you may publish it",
}


def topics(
    options: NodeOptions,
    address: str,
    prefix: str,
    schema: bool,
    timeout: float,
) -> None:
    """Show what a node offers to you: names, kinds, types and what is said of them."""
    if schema and options.as_json:
        raise ConfigError(
            "cannot use --schema with --json: --schema prints JSON already; leave --json out"
        )
    if not timeout > 0:  # not a number is not above 0 either
        raise ConfigError(f"cannot use --timeout {timeout:g}: it must be more than 0 seconds")

    async def asking(options: NodeOptions, out: Output) -> None:
        async with dialled(options, out, address) as peer:
            offers = await ask_offers(peer, prefix, timeout=timeout)
            node_id = str(peer.node_id) if peer.node_id else None
        if not prefix:
            remember(address, offers)
        if schema:
            out.say(json.dumps(bundle(offers, node_id), indent=2, ensure_ascii=False))
            return
        for offer in offers:
            out.event("offer", **described(offer))
        for line in shown(offers):
            out.say(line)
        out.done(node_id=node_id, count=len(offers))

    run(options, asking)


def described(offer: ToldOffer) -> dict[str, Any]:
    """An offer, for JSON."""
    return {
        "kind": offer.kind,
        "name": offer.name,
        "namespace": offer.namespace or None,
        "doc": offer.doc or None,
        "takes": offer.takes,
        "gives": offer.gives,
        **{flag: flag in offer.flags for flag in _SAID},
    }


def shown(offers: list[ToldOffer]) -> Iterator[str]:
    """The lines for people: each kind with its offers, then the types that these name."""
    if not offers:
        yield "nothing is offered to you there"
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


def _title(offer: ToldOffer) -> str:
    name = f"{offer.namespace}/{offer.name}" if offer.namespace else offer.name
    takes = "" if offer.takes is None else f" ({type_name(offer.takes)})"
    gives = "" if offer.gives is None else f" -> {type_name(offer.gives)}"
    if offer.kind == "topic":
        gives = gives.replace(" -> ", ": ", 1)
    said = ", ".join(_SAID[flag] for flag in offer.flags)
    return f"{name}{takes}{gives}{f'  [{said}]' if said else ''}"


def bundle(offers: list[ToldOffer], node_id: str | None) -> dict[str, Any]:
    """One document with all schemas, each under `KIND/NAME/takes` or `KIND/NAME/gives`."""
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
        "title": f"What {node_id or 'a node'} offers",
        "$defs": definitions,
    }
