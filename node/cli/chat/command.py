"""`parley chat`: hosts a room, or goes to one."""

import getpass
from typing import Any

import anyio

from parley._crypto.identity import NodeId
from parley._node.apps.chat.messages import Message, clean_name
from parley._node.apps.chat.room import Member, Room, joined
from parley._node.cli.chat.screen import Screen, edits_lines
from parley._node.cli.chat.talk import HELP, Standing, Talk
from parley._node.cli.context.file import Contexts
from parley._node.cli.context.places import MARK
from parley._node.cli.introduction import dialling_node
from parley._node.cli.lines import input_descriptor
from parley._node.cli.link import kept_link
from parley._node.cli.options import NodeOptions, in_context
from parley._node.cli.output import Output, counted
from parley._node.cli.run import make_node, run
from parley._node.errors import ConfigError, ParleyError
from parley._node.trust.policies import (
    FirstUse,
    Known,
    KnownPeers,
    TrustPolicy,
    default_known_peers,
)

ROOM = "lobby"
ARRIVED = f"you are {{}}; {HELP}"
AWAY = "* the host may have quit: this chat waits until it is back; /quit leaves"
RETURNED = "you are in the room again, as {}; what was said meanwhile is not known"
# Seconds that a closing host waits for members that do not read.
FAREWELL = 5.0


def chat(
    options: NodeOptions,
    address: str | None,
    listen: list[str] | None,
    name: str | None,
    room: str,
) -> None:
    """Talk with others: --listen hosts a room, ADDR goes to one."""
    if address is None and not listen and Contexts().in_use is not None:
        given = {"address": MARK}
        options, address = in_context(options, given), given["address"]
    if (address is None) == (not listen):
        given_too = "" if address is None else f", not both (ADDR is {address!r})"
        raise ConfigError(f"give ADDR to join a room or --listen ADDR to host one{given_too}")
    if options.plaintext:
        raise ConfigError(
            "cannot chat with --plaintext: peers prove no identity without encryption; "
            "leave --plaintext out"
        )
    chosen = _chosen(name)
    descriptor = input_descriptor()

    if options.loop != "asyncio" and edits_lines(Output(options.as_json), descriptor):
        raise ConfigError(f"--loop {options.loop}: at a terminal, chat runs on asyncio")

    async def chatting(options: NodeOptions, out: Output) -> None:
        screen = Screen(out, descriptor)
        if address is None:
            await _host(options, out, screen, listen or [], room, chosen)
        else:
            await _visit(options, out, screen, address, room, chosen)

    run(options, chatting, waits_on_files=True)


async def _host(
    options: NodeOptions, out: Output, screen: Screen, listen: list[str], room: str, name: str
) -> None:
    trust = options.listening_trust()
    async with make_node(options, trust) as node:
        standing = Standing(node.node_id, None, _on_record(trust))

        def show(message: Message) -> None:
            talk.show(message)

        hosted = Room(node, room, name or node.node_id.short, show)
        talk = Talk(out, screen, node.node_id, standing, lambda: hosted.people, hosted.say)
        addresses = [await node.listen(place) for place in listen]
        for place in addresses:
            screen.say(f"listening on {place}")
        me = hosted.host
        out.event("ready", node_id=str(me.node_id), addresses=addresses, room=room, name=me.name)
        screen.say(f"you are {me.name}; {HELP}")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hosted.run)
            await talk.converse(lambda: me.name)
            tasks.cancel_scope.cancel()
        with anyio.move_on_after(FAREWELL):
            await hosted.topic.finish()
    _done(out, screen, talk, "left")


async def _visit(
    options: NodeOptions, out: Output, screen: Screen, address: str, room: str, name: str
) -> None:
    known = _on_record(options.dialling_trust(address))  # dialling may record whom it meets
    reason, is_hinted = "left", False

    async def tell(text: str, kind: str, /, **fields: Any) -> None:
        nonlocal is_hinted
        out.event(kind, **fields)
        screen.say(f"* {text}")
        if kind == "disconnected" and not is_hinted:
            screen.say(AWAY)
        is_hinted = kind == "disconnected"

    place: Member | None = None

    def wanted() -> bool:
        return place is None or not place.is_over

    async with (
        dialling_node(options, out, address) as node,
        kept_link(node, options, out, address, tell, wanted=wanted) as link,
    ):
        host = (await link.ready()).node_id
        if host is None:
            raise ConfigError(
                f"cannot chat with {address!r}: the connection is not encrypted, and the host "
                "proves no identity"
            )
        async with joined(link, room, name or node.node_id.short) as member:
            place = member
            standing = Standing(
                member.me.node_id, {host}, known | {host} if "#" in address else known
            )
            talk = Talk(out, screen, host, standing, lambda: member.people, member.say)

            def arrived(text: str) -> None:
                me = member.me
                out.event("joined", node_id=str(me.node_id), room=room, name=me.name)
                screen.say(text.format(me.name))
                talk.roster()

            arrived(ARRIVED)
            member.on_return = lambda: arrived(RETURNED)
            async with anyio.create_task_group() as tasks:

                async def listen() -> None:
                    nonlocal reason
                    async for message in member:
                        await screen.room()
                        talk.show(message)
                    reason = "closed"
                    tasks.cancel_scope.cancel()

                tasks.start_soon(listen)
                await talk.converse(lambda: member.me.name)
                tasks.cancel_scope.cancel()
    if reason == "closed":
        screen.say("the host has closed the room")
    _done(out, screen, talk, reason)


def _done(out: Output, screen: Screen, talk: Talk, reason: str) -> None:
    """End the command; it has failed if lines of a file or a pipe were not said."""
    if talk.unsaid and not screen.edits_lines:
        raise ParleyError(f"{counted(talk.unsaid, 'line')} of the input could not be said")
    out.done(reason=reason)


def _chosen(name: str | None) -> str:
    """The name to wish for; empty for one's id, which is not known yet."""
    if name is not None:
        try:
            return clean_name(name)
        except ValueError as error:
            raise ConfigError(f"--name: {error}") from error
    try:
        return clean_name(getpass.getuser())
    except (KeyError, OSError, ValueError):
        return ""


def _on_record(trust: TrustPolicy) -> frozenset[NodeId]:
    """Who is on record now, where `trust` looks or else in the usual file."""
    if isinstance(trust, Known | FirstUse):
        return frozenset(peer.node_id for peer in trust.known_peers)
    try:
        return frozenset(peer.node_id for peer in KnownPeers(default_known_peers()))
    except ConfigError:
        return frozenset()  # no home, no record
