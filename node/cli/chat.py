"""`parley chat`: host a room, or join one.

Each message is printed on one line without control characters, above the line that the user is
typing.
"""

import getpass
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio

from parley._crypto.identity import NodeId
from parley._node.apps.chat.messages import TEXT_LENGTH, Message, Person, clean_name, require_text
from parley._node.apps.chat.room import Member, Room, join_room
from parley._node.cli.context_file import MARK, Contexts
from parley._node.cli.exit_codes import Exit
from parley._node.cli.first_contact import open_node
from parley._node.cli.link import open_link
from parley._node.cli.options import NodeOptions, apply_context
from parley._node.cli.output import Output, pluralise
from parley._node.cli.run import Uvloop, make_node, run
from parley._node.cli.standard_io import PacedOutput, read_lines, stdin_descriptor
from parley._node.errors import (
    CallRefused,
    CallTimeout,
    ConfigError,
    ParleyError,
    PeerClosedError,
    UnreachableError,
)
from parley._node.logs import one_line
from parley._node.protocol.codes import ResultCode
from parley._node.trust.key_statements import KeyStatements
from parley._node.trust.policies import (
    FirstUse,
    Known,
    KnownPeers,
    TrustPolicy,
    default_known_peers,
)

if TYPE_CHECKING:
    from parley._node.cli.chat_editor import LineEditor


_LONGEST_LINE: Final = 4 * TEXT_LENGTH  # bytes of a line from a file
_DUMB: Final = ("", "dumb", "unknown")  # terminals that can't edit a line


class Screen:
    """Input and output lines of a chat, at a terminal or in files. `descriptor` is the input's."""

    def __init__(self, out: Output, descriptor: int) -> None:
        self._out = out
        self._descriptor = descriptor
        self._editor: LineEditor | None = None
        self._pace = PacedOutput(sys.stdout)

    @property
    def edits_lines(self) -> bool:
        return edits_lines(self._out, self._descriptor)

    async def writable(self) -> None:
        await self._pace.writable()

    def say(self, text: str) -> None:
        """Show a line above the one that is being typed."""
        if self._editor is not None:
            self._editor.clear_line()
        self._out.print(one_line(text))

    @asynccontextmanager
    async def lines(self, prompt: Callable[[], str]) -> AsyncIterator[AsyncGenerator[str]]:
        """Yield the lines that are typed, until the end of the input.

        Raises:
            FileError: a line of a file is longer than 16,384 bytes.
        """
        if not self.edits_lines:
            async with aclosing(self._plain()) as lines:
                yield lines
            return
        # Imported here because prompt_toolkit takes as long to import as the rest of a command.
        from parley._node.cli.chat_editor import LineEditor

        self._editor = LineEditor(prompt)
        try:
            async with (
                anyio.create_task_group() as tasks,
                aclosing(self._editor.entered()) as lines,
            ):
                tasks.start_soon(self._editor.run)
                yield lines
                tasks.cancel_scope.cancel()
        finally:
            self._editor = None

    async def _plain(self) -> AsyncGenerator[str]:
        async with aclosing(read_lines(self._descriptor, _LONGEST_LINE)) as lines:
            async for raw in lines:
                yield raw.decode(errors="replace")


def edits_lines(out: Output, descriptor: int) -> bool:
    """Whether the user types at a terminal that supports line editing."""
    at_terminal = os.isatty(descriptor) and sys.stdout.isatty()
    return at_terminal and not out.as_json and os.environ.get("TERM", "") not in _DUMB


# Seconds between attempts to send a line of a file to a room that limits the rate, and in total.
_PAUSE: Final = 0.5
_PATIENCE: Final = 60.0
HELP: Final = "/who lists the people here, /quit leaves, /help shows this; // sends a leading /"


class Standing:
    """Decides how well the user `me` knows a person. `proved` are the IDs that were proved to this
    node rather than reported by the host (None: all). `known` are the IDs in the known peers or in
    the address, which also stand for their successors by `statements` until they end.
    """

    def __init__(
        self,
        me: NodeId,
        proved: Collection[NodeId] | None,
        known: Collection[NodeId],
        statements: KeyStatements,
    ) -> None:
        self._me = me
        self._proved = proved
        self._known = frozenset(known)
        self._statements = statements

    def __call__(self, person: Person) -> str:
        """Return you, verified (known and proved), told (known, but only reported by the host) or
        new. An ended ID is new.
        """
        if person.node_id == self._me:
            return "you"
        table = self._statements.table
        if table.has_ended(person.node_id) or self._known.isdisjoint(table.lineage(person.node_id)):
            return "new"
        return "verified" if self._proved is None or person.node_id in self._proved else "told"


class Conversation:
    """One user's chat. `unsaid` counts lines that were refused or possibly not sent."""

    def __init__(
        self,
        out: Output,
        screen: Screen,
        host: NodeId,
        standing: Standing,
        people: Callable[[], list[Person]],
        say: Callable[[str], Awaitable[None]],
    ) -> None:
        self._out = out
        self._screen = screen
        self._host = host
        self._standing = standing
        self._people = people
        self._say = say
        self.unsaid = 0

    def show(self, message: Message) -> None:
        person = message.person
        standing = self._standing(person)
        told = {"node_id": str(person.node_id), "name": person.name, "standing": standing}
        if message.kind == "text":
            self._out.event("message", **told, text=message.text)
            self._screen.say(f"{person.name}: {message.text}")
        else:
            self._out.event(message.kind, **told)
            named = self._out.petnames.beside_short(person.node_id)
            happened = "has joined" if message.kind == "join" else "has left"
            self._screen.say(f"* {person.name} {happened} ({named}, {standing})")

    def roster(self) -> None:
        people = self._people()
        self._out.event("roster", people=[self._described(person) for person in people])
        for person in people:
            host = ", host" if person.node_id == self._host else ""
            standing = self._standing(person)
            named = self._out.petnames.beside_short(person.node_id)
            self._screen.say(f"  {person.name:16}  {named}  {standing}{host}")

    async def converse(self, name: Callable[[], str]) -> None:
        """Execute the typed lines until the end or /quit; `name` returns the current name."""
        async with self._screen.lines(lambda: f"{name()}> ") as lines:
            async for line in lines:
                text = line.strip()
                if text == "/quit":
                    return
                if text:
                    await self._do(text)

    async def _do(self, text: str) -> None:
        if text == "/who":
            self.roster()
        elif text == "/help":
            self._screen.say(HELP)
        elif text.startswith("/") and not text.startswith("//"):
            self._refused(Exit.USAGE, f"unknown command {text.split()[0]!r}: {HELP}")
        else:
            await self.send(text.removeprefix("/"))

    async def send(self, text: str) -> None:
        self.unsaid += 1
        try:
            await self._until_said(require_text(text))
            self.unsaid -= 1
        except (CallTimeout, PeerClosedError) as error:
            self._out.event("unanswered", text=text, error=str(error))
            self._screen.say(f"! may not have been delivered: {text} ({error})")
        except CallRefused as refused:
            data = refused.data
            self._refused(refused.code, data if isinstance(data, str) else refused.summary)
        except UnreachableError as error:
            self._refused(Exit.UNREACHABLE, f"cannot send {text!r}: {error}")
        except ValueError as error:
            self._refused(Exit.USAGE, str(error))

    async def _until_said(self, text: str) -> None:
        """Send the text. For a file or a pipe, retry while the room limits the rate."""
        waited = 0.0
        while True:
            try:
                await self._say(text)
            except CallRefused as refused:
                if (
                    refused.code != ResultCode.OVERLOADED
                    or self._screen.edits_lines
                    or waited >= _PATIENCE
                ):
                    raise
            else:
                return
            await anyio.sleep(_PAUSE)
            waited += _PAUSE

    def _refused(self, code: int, text: str) -> None:
        self._out.event("refused", code=code, kind="result", text=text)
        self._screen.say(f"! {text}")

    def _described(self, person: Person) -> dict[str, Any]:
        return {
            "node_id": str(person.node_id),
            "name": person.name,
            "standing": self._standing(person),
            "host": person.node_id == self._host,
            **self._out.petnames.known_by(person.node_id),
        }


ROOM = "lobby"
ARRIVED = f"you are {{}}; {HELP}"
AWAY = "* the host may have quit: this chat waits until it is back; /quit leaves"
RETURNED = "you are in the room again, as {}; some messages may be missing"
# Seconds for which a closing host waits for members that read slowly.
FAREWELL = 5.0


def chat(
    options: NodeOptions,
    address: str | None,
    listen: list[str] | None,
    name: str | None,
    room: str,
) -> None:
    if address is None and not listen and Contexts().in_use is not None:
        given = {"address": MARK}
        options, address = apply_context(options, given), given["address"]
    if address is None and not listen:
        raise ConfigError(
            "cannot start a chat: no address is given; give ADDR to join a room, or --listen ADDR "
            "to host one"
        )
    if address is not None and listen:
        raise ConfigError(f"cannot use --listen with ADDR {address!r}: leave one of them out")
    if options.plaintext:
        raise ConfigError(
            "cannot chat with --plaintext: peers prove no identity without encryption; "
            "leave --plaintext out"
        )
    chosen = _chosen(name)
    descriptor = stdin_descriptor()

    if options.loop != "asyncio" and edits_lines(Output(options.as_json), descriptor):
        raise ConfigError(
            f"cannot use --loop {options.loop} at a terminal: chat requires asyncio there; leave "
            "--loop out"
        )

    async def chatting(options: NodeOptions, out: Output) -> None:
        screen = Screen(out, descriptor)
        if address is None:
            await _host(options, out, screen, listen or [], room, chosen)
        else:
            await _visit(options, out, screen, address, room, chosen)

    run(options, chatting, uvloop=Uvloop.IMPOSSIBLE)


async def _host(
    options: NodeOptions, out: Output, screen: Screen, listen: list[str], room: str, name: str
) -> None:
    trust = options.listening_trust()
    async with make_node(options, trust) as node:
        standing = Standing(node.node_id, None, _on_record(trust), node.statements)

        def show(message: Message) -> None:
            talk.show(message)

        hosted = Room(node, room, name or node.node_id.short, show)
        talk = Conversation(out, screen, node.node_id, standing, lambda: hosted.people, hosted.say)
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
    known = _on_record(
        options.dialling_trust(address)
    )  # before dialling, which may record the host
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
        open_node(options, out, address) as node,
        open_link(node, options, out, address, tell, wanted=wanted) as link,
    ):
        host = (await link.ready()).node_id
        if host is None:
            raise ConfigError(
                f"cannot chat with {address!r}: the connection is not encrypted, and the host "
                "proves no identity"
            )
        async with join_room(link, room, name or node.node_id.short) as member:
            place = member
            standing = Standing(
                member.me.node_id,
                {host},
                known | {host} if "#" in address else known,
                node.statements,
            )
            talk = Conversation(out, screen, host, standing, lambda: member.people, member.say)

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
                        await screen.writable()
                        talk.show(message)
                    reason = "closed"
                    tasks.cancel_scope.cancel()

                tasks.start_soon(listen)
                await talk.converse(lambda: member.me.name)
                tasks.cancel_scope.cancel()
    if reason == "closed":
        screen.say("the host has closed the room")
    _done(out, screen, talk, reason)


def _done(out: Output, screen: Screen, talk: Conversation, reason: str) -> None:
    """End the command; it fails if lines of a file or a pipe were not sent."""
    if talk.unsaid and not screen.edits_lines:
        raise ParleyError(
            f"cannot send {pluralise(talk.unsaid, 'line')} of the input: the room refused them "
            "or the connection was lost; the reasons are above"
        )
    out.done(reason=reason)


def _chosen(name: str | None) -> str:
    """Return the requested name; empty to use the node id."""
    if name is not None:
        try:
            return clean_name(name)
        except ValueError as error:
            raise ConfigError(f"invalid --name {name!r}: {error}") from error
    try:
        return clean_name(getpass.getuser())
    except (KeyError, OSError, ValueError):
        return ""


def _on_record(trust: TrustPolicy) -> frozenset[NodeId]:
    """Return the known peers of the trust policy, or else of the default file."""
    if isinstance(trust, Known | FirstUse):
        return frozenset(peer.node_id for peer in trust.known_peers)
    try:
        return frozenset(peer.node_id for peer in KnownPeers(default_known_peers()))
    except ConfigError:
        return frozenset()  # no home directory, so no known peers
