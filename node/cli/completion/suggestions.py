"""Completion of addresses, names, files and algorithms.

On an error, completion suggests nothing and prints nothing.
"""

from pathlib import Path
from typing import Final

import click

from parley._crypto.registry import NAMES, PARAMETERS
from parley._node.cli.completion.responder import SAFE_NAME, safe_description
from parley._node.cli.context_file import Contexts
from parley._node.errors import AddressError, ParleyError
from parley._node.transport.address import Address
from parley._node.trust.known_peers import KnownPeer, KnownPeers, default_known_peers

_FILE: Final = "sqlite:///"
_REDIS: Final = ("redis://", "rediss://", "redis+unix:///")
MOST_FILES: Final = 100  # maximum number of suggestions


def known_addresses(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[tuple[str, str]]:
    return [
        (f"{name}#{peer.node_id}" if "#" in incomplete else name, peer.node_id.short)
        for peer in _known()
        for name in _names(peer)
        if _is_address(name)
    ]


def places(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[tuple[str, str]]:
    marked = [(f"@{name}", text) for name, text in contexts(ctx, param, incomplete)]
    for peer in _known():
        names = _names(peer)
        if any(map(_is_address, names)):
            marked += [(f"@{one}", peer.node_id.short) for one in names if "://" not in one]
    return [*marked, *known_addresses(ctx, param, incomplete)]


def contexts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[tuple[str, str]]:
    try:
        found = Contexts().all().items()
    except ParleyError:
        return []
    return [
        (name, safe_description(one.address or ""))
        for name, one in found
        if SAFE_NAME.fullmatch(name)
    ]


def bus_addresses(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[tuple[str, str]]:
    return [*bus_files(ctx, param, incomplete), *places(ctx, param, incomplete)]


def bus_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[tuple[str, str]]:
    files = _databases() if incomplete.startswith(_FILE) else []
    return [(f"{_FILE}{name}", "") for name in files] or [(b, "") for b in (_FILE, *_REDIS)]


def known_names(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[tuple[str, str]]:
    peers = _known()
    names = [(name, peer.node_id.short) for peer in peers for name in _names(peer)]
    return names + [(str(peer.node_id), " ".join(_names(peer)[:1])) for peer in peers]


def ended_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[tuple[str, str]]:
    # Only this completion needs it, and importing it takes a sixth of the time of another one.
    from parley._node.trust.key_statements import default_key_statements, read_table

    try:
        origins = read_table(default_key_statements()).origins
    except ParleyError:
        return []
    named = {peer.node_id: _names(peer) for peer in _known()}
    names = [(name, one.short) for one in origins for name in named.get(one, ())]
    return names + [(str(one), " ".join(named.get(one, [])[:1])) for one in origins]


def algorithms(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[tuple[str, str]]:
    return _list_with(incomplete, NAMES.get(param.name or "", NAMES["signing"]))


def any_algorithm(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[tuple[str, str]]:
    return _list_with(incomplete, [name for p in PARAMETERS for name in NAMES[p]])


def _list_with(incomplete: str, names: list[str] | tuple[str, ...]) -> list[tuple[str, str]]:
    before, comma, _ = incomplete.rpartition(",")
    taken = before.split(",")
    return [(f"{before}{comma}{name}", "") for name in names if name not in taken]


def _known() -> list[KnownPeer]:
    try:
        return list(KnownPeers(default_known_peers()))
    except ParleyError:
        return []


def _databases() -> list[str]:
    try:
        names = sorted(path.name for path in Path().glob("*.db"))[:MOST_FILES]
    except OSError:
        return []
    return [name for name in names if SAFE_NAME.fullmatch(name)]


def _names(peer: KnownPeer) -> list[str]:
    return [name for name in peer.names if SAFE_NAME.fullmatch(name)]


def _is_address(name: str) -> bool:
    try:
        return str(Address.parse(name)) == name
    except AddressError:
        return False
