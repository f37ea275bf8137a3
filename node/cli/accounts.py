"""`parley accounts`: shows and changes the file of accounts, by which a server with
`accounts = "known"` is the home of nodes. The file is of the kind of `node.trust.known_peers`.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from crypto.errors import IdentityError
from crypto.identity import NodeId
from node.cli.options import Json
from node.cli.output import Output
from node.cli.peers import find_peer, utc
from node.cli.terminal import table_of_nodes
from node.errors import ConfigError, FileError
from node.trust.known_peers import KnownPeer, KnownPeers, default_accounts

AccountsPath = Annotated[
    Path | None,
    typer.Option(
        "--accounts",
        metavar="FILE",
        help="Default: accounts in $PARLEY_HOME or ~/.config/parley.",
    ),
]
NewAccount = Annotated[str, typer.Argument(metavar="ID", help="The node id.")]
Name = Annotated[
    str | None, typer.Argument(metavar="NAME", help="For people. No commas, no blanks.")
]
Who = Annotated[
    str,
    typer.Argument(
        metavar="ID-OR-NAME", help="A name, a node id, or the beginning of one that fits no other."
    ),
]


def list_accounts(accounts: AccountsPath = None, as_json: Json = False) -> None:
    """Show everybody who has an account."""
    file, out = _file(accounts, must_exist=True), Output(as_json)
    found = list(file)
    for account in found:
        out.event("account", **_described(account))
    if found:
        rows = ((str(one.node_id), utc(one), _names(one, out)) for one in found)
        out.table(table_of_nodes("accounts", "added", rows))
    else:
        out.say(f"nobody has an account in {file.path}")
    out.done(count=len(found), accounts=str(file.path))


def add(
    node_id: NewAccount, name: Name = None, accounts: AccountsPath = None, as_json: Json = False
) -> None:
    """Give a node an account, or its account one more name."""
    file, out = _file(accounts), Output(as_json)
    try:
        who = NodeId.parse(node_id)
    except IdentityError as error:
        raise ConfigError(f"{node_id} is not a node id: {error}") from error
    account = file.add(who, name, datetime.now(UTC))
    out.effect = f"{who} has an account"
    out.say(f"{out.petnames.beside(who)} has an account")
    out.done(**_described(account), accounts=str(file.path))


def remove(who: Who, accounts: AccountsPath = None, as_json: Json = False) -> None:
    """Take an account away: the node is not reached through this server any more."""
    file, out = _file(accounts, must_exist=True), Output(as_json)
    account = find_peer(file, who)
    if not file.forget(account.node_id):
        raise ConfigError(f"{account.node_id} has just been struck out of {file.path}")
    out.effect = f"{account.node_id} has no account any longer"
    out.say(f"{out.petnames.beside(account.node_id)} has no account any more")
    out.done(**_described(account), accounts=str(file.path))


def _file(path: Path | None, *, must_exist: bool = False) -> KnownPeers:
    if path is None:
        return KnownPeers(default_accounts())
    if must_exist and not path.exists():
        raise FileError(f"there is no file of accounts at {path}")
    return KnownPeers(path)


def _names(account: KnownPeer, out: Output) -> list[str]:
    """Those in the file, and what the node is called on this machine."""
    petname = out.petnames.of(account.node_id)
    return [*account.names, *([] if petname in (None, *account.names) else [f"({petname})"])]


def _described(account: KnownPeer) -> dict[str, object]:
    return {
        "node_id": str(account.node_id),
        "names": list(account.names),
        "added": utc(account),
    }
