"""`parley federation`: show the servers that a server knows, paths, and problems.

Servers answer only members and accounts, so `--identity` must be the key of one.
"""

from collections.abc import Mapping
from typing import Any, Final

import click

from parley._crypto.errors import IdentityError
from parley._crypto.identity import NodeId
from parley._node.cli.exit_codes import Exit
from parley._node.cli.first_contact import connect
from parley._node.cli.options import NodeOptions
from parley._node.cli.output import Output, pluralise
from parley._node.cli.run import run
from parley._node.errors import ConfigError, ParleyError
from parley._node.logs import one_line

_SHOWN: Final = 8  # characters of a node ID in a table


def list_servers(options: NodeOptions, address: str, timeout: float) -> None:
    async def listing(options: NodeOptions, out: Output) -> None:
        found = await _call_server(options, out, address, "list", None, timeout)
        out.print(f"server  {out.petnames.beside(found['node_id'])}")
        for link in found["links"]:
            out.event("link", **link)
            out.print(f"link    {one_line(out.petnames.in_text(_link(link)))}")
        for server in found["servers"]:
            out.event("server", **server)
            out.print(f"member  {one_line(out.petnames.in_text(_server(server)))}")
        out.done(node_id=found["node_id"], servers=len(found["servers"]))

    run(options, listing)


def path(options: NodeOptions, address: str, to: list[str], timeout: float) -> None:
    for text in to:
        _require_id(text)

    async def showing(options: NodeOptions, out: Output) -> None:
        found = (await _call_server(options, out, address, "path", to, timeout))["path"]
        if found is None:
            raise ParleyError(f"cannot find a path to {' '.join(to)}: the server knows no path")
        for number, node_id in enumerate(found):
            out.print(f"{number}  {one_line(out.petnames.beside(node_id))}")
        out.done(path=found)

    run(options, showing)


def check(options: NodeOptions, address: str, timeout: float) -> None:
    wrong: list[object] = []

    async def checking(options: NodeOptions, out: Output) -> None:
        found = await _call_server(options, out, address, "check", None, timeout)
        wrong.extend(found)
        for finding in found:
            out.event("finding", **finding)
            out.print(
                f"{one_line(finding['kind'])}: {one_line(out.petnames.in_text(finding['text']))}"
            )
        out.print("no problems found" if not found else pluralise(len(found), "finding"))
        out.done(findings=len(found))

    run(options, checking)
    if wrong:
        raise click.exceptions.Exit(Exit.FAILED)


async def _call_server(
    options: NodeOptions, out: Output, address: str, what: str, data: Any, timeout: float
) -> Any:
    """Call `parley.federation.WHAT` at the server."""
    async with connect(options, out, address) as peer:
        return await peer.call(f"parley.federation.{what}", data, timeout=timeout)


def _link(link: Mapping[str, Any]) -> str:
    state = "up" if link["up"] else f"down: {link['error']}" if link["error"] else "down"
    return (
        f"{link['node_id']}  {state}, dialled by "
        f"{'this server' if link['dialled'] else 'the other server'}"
    )


def _server(server: Mapping[str, Any]) -> str:
    path, links = server["path"], server["links"]
    hops = pluralise(len(path) - 1, "hop") if path else "no path"
    between = " ".join(map(_short, path[1:-1]))
    carried = " ".join(_short(one) for one, carries in links.items() if carries)
    return "; ".join(
        (
            f"{server['node_id']}  {hops}{' via ' if between else ''}{between}",
            pluralise(len(links), "link"),
            f"forwards tunnels of {carried or 'no server'}",
            f"exports {' '.join(server['exports']) or 'nothing'}",
        )
    )


def _short(node_id: str) -> str:
    return node_id[:_SHOWN]


def _require_id(text: str) -> None:
    try:
        NodeId.parse(text)
    except IdentityError as error:
        raise ConfigError(f"invalid node ID {text!r}: expected 52 base32 characters") from error
