"""The federation that `parley serve` takes part in: its options, its calls, its announcement."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from parley._node.apps.codes.slots import offer_code_calls
from parley._node.cli.output import Output, counted
from parley._node.cli.run import require_other
from parley._node.node import Node
from parley._node.server.calls import offer_federation_calls
from parley._node.server.federation import Federation
from parley._node.settings import FederationSettings
from parley._node.settings.federation import parse_accounts


def told(
    link: list[str] | None,
    member: list[str] | None,
    carry: list[str] | None,
    export: list[str] | None,
    follow: list[str] | None,
    accounts: str | None,
) -> dict[str, tuple[str, object]]:
    """Return the options that set the table `[federation]`, for `load_settings`."""
    return {
        "federation.links": ("--link", link or None),
        "federation.members": ("--member", member or None),
        "federation.carry": ("--carry", carry or None),
        "federation.exports": ("--export", export or None),
        "federation.follow": ("--follow", follow or None),
        "federation.accounts": (
            "--accounts",
            None if accounts is None else parse_accounts(accounts),
        ),
    }


@asynccontextmanager
async def federated(node: Node, settings: FederationSettings) -> AsyncIterator[Federation | None]:
    """While it lasts, the node takes the part in a federation that the settings name, if any.

    Raises:
        ConfigError: it cannot be, as `Federation`.
    """
    if settings == FederationSettings():
        yield None
        return
    require_other(node, *settings.links)
    async with Federation(node, settings) as federation:
        offer_federation_calls(node, federation)
        offer_code_calls(node)
        yield federation


def announce_federation(out: Output, settings: FederationSettings) -> None:
    """Say what part is taken."""
    if settings == FederationSettings():
        return
    links, members = len(settings.places), len(settings.all_members)
    out.say(f"a server of a federation: {counted(links, 'link')}, {counted(members, 'member')}")
    out.event(
        "federation",
        links=list(settings.links),
        members=[str(member) for member in sorted(settings.all_members)],
        carry=list(settings.carry),
        exports=list(settings.exports),
        follow=list(settings.follow),
        accounts=settings.accounts
        if isinstance(settings.accounts, str)
        else list(settings.accounts),
    )
