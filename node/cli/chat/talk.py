"""One person's chat: shows what happens in the room, and does what the person types.

It is the same for the host and for guests, who only say things in different ways.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

import anyio

from parley._crypto.identity import NodeId
from parley._node.apps.chat.messages import Message, Person, require_text
from parley._node.cli.chat.screen import Screen
from parley._node.cli.exits import Exit
from parley._node.cli.output import Output
from parley._node.errors import CallRefused, CallTimeout, PeerClosedError, UnreachableError
from parley._node.protocol.codes import ResultCode

# Seconds between two tries to say a line of a file in a room that limits its rate, and in all.
_PAUSE: Final = 0.5
_PATIENCE: Final = 60.0
HELP: Final = "/who shows who is here, /quit leaves, /help shows this; // begins a line with /"


class Standing:
    """How well people are known. `me` is the viewer, `proved` whose id was proved to us and
    not only told by the host (None: everybody's), `known` who was on record before or
    was pinned by the address."""

    def __init__(
        self, me: NodeId, proved: Collection[NodeId] | None, known: Collection[NodeId]
    ) -> None:
        self._me = me
        self._proved = proved
        self._known = known

    def __call__(self, person: Person) -> str:
        """you; verified: known, and proved to us; told: known, but only by the host's word; new."""
        if person.node_id == self._me:
            return "you"
        if person.node_id not in self._known:
            return "new"
        return "verified" if self._proved is None or person.node_id in self._proved else "told"


class Talk:
    """One person's chat."""

    def __init__(
        self,
        out: Output,
        screen: Screen,
        host: NodeId,
        standing: Standing,
        people: Callable[[], list[Person]],
        say: Callable[[str], Awaitable[None]],
    ) -> None:
        """`unsaid` counts lines that were refused or perhaps not said."""
        self._out = out
        self._screen = screen
        self._host = host
        self._standing = standing
        self._people = people
        self._say = say
        self.unsaid = 0

    def show(self, message: Message) -> None:
        """Show what happened."""
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
        """Show who is here."""
        people = self._people()
        self._out.event("roster", people=[self._described(person) for person in people])
        for person in people:
            host = ", host" if person.node_id == self._host else ""
            standing = self._standing(person)
            named = self._out.petnames.beside_short(person.node_id)
            self._screen.say(f"  {person.name:16}  {named}  {standing}{host}")

    async def converse(self, name: Callable[[], str]) -> None:
        """Do what is typed, until the end or /quit; `name` is one's own, at the moment."""
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
            self._refused(Exit.USAGE, f"there is no {text.split()[0]}: {HELP}")
        else:
            await self.send(text.removeprefix("/"))

    async def send(self, text: str) -> None:
        self.unsaid += 1
        try:
            await self._until_said(require_text(text))
            self.unsaid -= 1
        except (CallTimeout, PeerClosedError) as error:
            self._out.event("unanswered", text=text, error=str(error))
            self._screen.say(f"! perhaps not said: {text} ({error})")
        except CallRefused as refused:
            data = refused.data
            self._refused(refused.code, data if isinstance(data, str) else refused.summary)
        except UnreachableError as error:
            self._refused(Exit.UNREACHABLE, f"not said: {text} ({error})")
        except ValueError as error:
            self._refused(Exit.USAGE, str(error))

    async def _until_said(self, text: str) -> None:
        """Say it; lines of a file or a pipe wait while the room limits their rate."""
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
