"""`parley peers`: list and change the file of known peers, or of a local server's accounts.

A change applies to exactly one peer. A name that matches several peers changes nothing and lists
them. `node.trust.known_peers` describes the file's format.
"""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from parley._crypto.errors import IdentityError
from parley._crypto.identity import NodeId
from parley._node.cli.output import Output
from parley._node.cli.terminal import table_of_nodes
from parley._node.errors import AddressError, ConfigError, FileError
from parley._node.settings import load_settings
from parley._node.transport.address import Address
from parley._node.trust.files import utc_text
from parley._node.trust.key_statements import default_key_statements, read_table
from parley._node.trust.known_peers import (
    KnownPeer,
    KnownPeers,
    default_accounts,
    default_known_peers,
)
from parley._node.trust.statement_table import StatementTable
from parley._node.trust.words import fingerprint

SHORTEST_ID: Final = 4  # minimum length of a node ID's prefix


def list_peers(
    accounts: bool, known_peers: Path | None, config: Path | None, as_json: bool
) -> None:
    known, out = _file(known_peers, accounts), output_with_settings(config, as_json)
    peers = list(known)
    for peer in peers:
        out.event("peer", **_described(peer))
    if peers:
        rows = ((str(peer.node_id), utc_text(peer.first_seen), _names(peer, out)) for peer in peers)
        title, since = ("accounts", "added") if accounts else ("known peers", "first seen")
        out.table(table_of_nodes(title, since, rows))
    else:
        out.print(f"no known peers in {known.path}")
    out.done(count=len(peers), known_peers=str(known.path))


def add(
    node_id: str,
    name: str | None,
    accounts: bool,
    known_peers: Path | None,
    config: Path | None,
    as_json: bool,
) -> None:
    found = _node_id(node_id)
    if found is None:
        raise ConfigError(f"invalid node ID {node_id!r}: expected 52 base32 characters")
    out = output_with_settings(config, as_json)
    known = _file(known_peers, accounts, must_exist=False)
    peer = known.add(found, name, datetime.now(UTC))
    names = ", ".join(peer.names)
    if accounts:
        out.print(f"{peer.node_id} has an account{' as ' if names else ''}{names}")
    else:
        out.print(f"{peer.node_id} is {names or 'known'}")
    out.print(f"words  {fingerprint(peer.node_id)}")
    out.done(**_described(peer), known_peers=str(known.path))


def forget(
    who: str,
    accounts: bool,
    known_peers: Path | None,
    config: Path | None,
    as_json: bool,
) -> None:
    known, out = _file(known_peers, accounts), output_with_settings(config, as_json)
    table = read_table(default_key_statements(), follow=out.follow)
    node_id = _find_id(known, table, who)
    lines = known.lookup_all(table.lineage(node_id))
    for peer in lines:
        if not known.forget(peer.node_id):
            raise ConfigError(
                f"cannot forget {peer.node_id}: another command has just removed it from "
                f"'{known.path}'"
            )
        out.effect = f"forgot {peer.node_id}"
        out.print(f"forgot {peer.node_id}, known since {utc_text(peer.first_seen)}")
        out.print(f"names  {', '.join(peer.names) or '-'}")
    first = min(lines, key=lambda peer: peer.first_seen)
    out.done(
        node_id=str(node_id),
        names=[name for peer in lines for name in peer.names],
        first_seen=utc_text(first.first_seen),
        words=fingerprint(node_id),
        predecessors=[str(peer.node_id) for peer in lines if peer.node_id != node_id],
        known_peers=str(known.path),
    )


def rename(
    who: str,
    new_name: str,
    accounts: bool,
    known_peers: Path | None,
    config: Path | None,
    as_json: bool,
) -> None:
    known, out = _file(known_peers, accounts), output_with_settings(config, as_json)
    table = read_table(default_key_statements(), follow=out.follow)
    # The line of a predecessor has the names of a successor that has none itself.
    peer = known.lookup_all(table.lineage(_find_id(known, table, who)))[0]
    renamed = known.rename(peer.node_id, *_renamed(peer, who, new_name))
    out.effect = f"renamed {renamed.node_id}"
    out.print(f"{renamed.node_id} is {', '.join(renamed.names)}")
    out.done(**_described(renamed), old_names=list(peer.names), known_peers=str(known.path))


def output_with_settings(config: Path | None, as_json: bool) -> Output:
    """Return the output of a command that considers `serve.successions` of a server, in the
    settings of the file `config` and the environment.

    Raises:
        ConfigError: as for `load_settings`.
    """
    return Output(as_json, follow=load_settings(config).serve.follows_successors)


def _find_id(known: KnownPeers, table: StatementTable, who: str) -> NodeId:
    """Return the ID of the peer with this name, address, node ID or prefix of a node ID: a peer
    that has a line, or that succeeds a peer that has one.

    Raises:
        ConfigError: no peer matches, or several, which are listed.
        KnownPeersError: as for `KnownPeers`.
    """
    peers = list(known)
    found = dict.fromkeys(
        [peer.node_id for peer in peers if fits(peer.node_id, peer.names, who)]
        + [
            current
            for peer in peers
            if (current := table.current(peer.node_id)) is not None and fits(current, (), who)
        ]
    )
    _require_one(known, list(found), who)
    return next(iter(found))


def _require_one(known: KnownPeers, found: Sequence[NodeId], who: str) -> None:
    if not found:
        raise ConfigError(
            f"cannot find {who!r} in '{known.path}': no peer has this name or node ID; list all "
            "with: parley peers list"
        )
    if len(found) > 1:
        lines = {node_id: known.lookup(node_id) for node_id in found}
        peers = "; ".join(
            f"{node_id} ({', '.join(line.names if line else ()) or '-'})"
            for node_id, line in lines.items()
        )
        raise ConfigError(
            f"cannot choose a peer by {who!r}: it matches {len(found)} peers; name one of them: "
            f"{peers}"
        )


def fits(node_id: NodeId, names: Collection[str], who: str) -> bool:
    """Return whether `who` is the node ID, a prefix of it, or one of the names."""
    if _node_id(who) is not None:
        return node_id == _node_id(who)
    if who in names or _place(who) in names:
        return True
    return len(who) >= SHORTEST_ID and node_id.text.startswith(who)


def _renamed(peer: KnownPeer, who: str, new_name: str) -> list[str]:
    """Return the names with `new_name` in place of the given one.

    Addresses are kept, however the peer was found. They record which peer answered there, and a
    removed address would be treated as unknown. Only another address replaces an address.
    """
    given = next((name for name in (who, _place(who)) if name in peer.names), None)
    if given is None:
        return [*(name for name in peer.names if _place(name) is not None), new_name]
    if _place(given) is not None and _place(new_name) is None:
        return [*peer.names, new_name]
    return [new_name if name == given else name for name in peer.names]


def _place(text: str) -> str | None:
    """Return the normal form of an address; None if it is not an address."""
    try:
        return str(Address.parse(text).without_node_id())
    except AddressError:
        return None


def _node_id(text: str) -> NodeId | None:
    try:
        return NodeId.parse(text)
    except IdentityError:
        return None


def _file(path: Path | None, accounts: bool, *, must_exist: bool = True) -> KnownPeers:
    if path is None:
        return KnownPeers(default_accounts() if accounts else default_known_peers())
    if must_exist and not path.exists():
        raise FileError(f"cannot read the known peers in '{path}': the file does not exist")
    return KnownPeers(path)


def _names(peer: KnownPeer, out: Output) -> list[str]:
    """Return the names in the file, and also the petname if it differs."""
    petname = out.petnames.of(peer.node_id)
    return [*peer.names, *([] if petname in (None, *peer.names) else [f"({petname})"])]


def _described(peer: KnownPeer) -> dict[str, object]:
    return {
        "node_id": str(peer.node_id),
        "names": list(peer.names),
        "first_seen": utc_text(peer.first_seen),
        "words": fingerprint(peer.node_id),
    }
