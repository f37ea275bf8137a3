"""A chat room between nodes in one process: members, messages and refusals."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import anyio
import pytest
from anyio.abc import TaskGroup

import parley._node.apps.chat.room as member_module
from parley import Call, CallRefused, Link, Node, NodeConfig, Peer, SubscribeRefused
from parley._crypto.identity import Identity
from parley._node.apps.chat.messages import Message, Person
from parley._node.apps.chat.room import ID_LIMIT, RATE_COUNT, RATE_SECONDS, Member, Room, join_room
from parley._node.errors import ParleyError, PeerClosedError, UnreachableError
from parley._node.testing import connect_nodes
from tests.node.network import config, eventually, new_node, settled, started
from tests.node.peer.servers import QUICK, serving

pytestmark = pytest.mark.anyio

PATIENCE = 10.0


class Hall:
    """A room and its host; `seen` has all its events."""

    address = ""

    def __init__(self, limit: int = 100) -> None:
        self.node = new_node()
        self.seen: list[tuple[str, str, str]] = []
        self.room = Room(self.node, "lobby", "Host", self._note, limit=limit)

    def _note(self, message: Message) -> None:
        self.seen.append((message.kind, message.person.name, message.text))

    @property
    def names(self) -> list[str]:
        return [person.name for person in self.room.people]

    async def guest(self, node: Node) -> Peer:
        peer, _ = await connect_nodes(node, self.node)
        return peer

    @asynccontextmanager
    async def joined(self, node: Node, wish: str) -> AsyncIterator[Member]:
        async with node.link(self.address) as link, join_room(link, "lobby", wish) as member:
            yield member


@asynccontextmanager
async def meeting(guest: Node, host: Node) -> AsyncIterator[tuple[Link, Peer]]:
    """Link a guest to a host; return the link and the guest's peer."""
    async with guest.link(await host.listen("tcp://127.0.0.1:0"), pauses=QUICK) as link:
        yield link, await link.ready()


@asynccontextmanager
async def hall(limit: int = 100) -> AsyncIterator[Hall]:
    made = Hall(limit)
    with anyio.fail_after(PATIENCE):
        async with made.node, anyio.create_task_group() as tasks:
            made.address = await made.node.listen("tcp://127.0.0.1:0")
            tasks.start_soon(made.room.run)
            yield made
            tasks.cancel_scope.cancel()


async def next_of(member: Member, kind: str) -> Message:
    async for message in member:
        if message.kind == kind:
            return message
    raise AssertionError(f"the room was closed before a {kind}")


async def test_two_people_and_the_host_talk(anyio_backend: str) -> None:
    async with hall() as here, new_node() as a, new_node() as b:
        async with here.joined(a, "ann") as ann:
            assert ann.me == Person(a.node_id, "ann")
            assert ann.people == [here.room.host]
            async with here.joined(b, "bob") as bob:
                assert (await next_of(ann, "join")).person == ann.me
                assert (await next_of(ann, "join")).person == bob.me
                await bob.say("hello ✓ \x1b[2J")
                await here.room.say("welcome")
                for member in (ann, bob):
                    said = await next_of(member, "text")
                    assert said == Message("text", bob.me, "hello ✓ \x1b[2J")
                    assert await next_of(member, "text") == Message(
                        "text", here.room.host, "welcome"
                    )
                    assert {person.name for person in member.people} == {"Host", "ann", "bob"}
            assert await next_of(ann, "leave") == Message("leave", Person(b.node_id, "bob"))
            assert [person.name for person in ann.people] == ["Host", "ann"]
        await eventually(lambda: here.names == ["Host"])
    assert here.seen == [
        *(("join", "ann", ""), ("join", "bob", "")),
        *(("text", "bob", "hello ✓ \x1b[2J"), ("text", "Host", "welcome")),
        *(("leave", "bob", ""), ("leave", "ann", "")),
    ]


async def test_duplicate_name_gets_a_number(anyio_backend: str) -> None:
    long = "x" * 32
    names = []
    async with hall() as here, AsyncExitStack() as stack:
        for wish in ("HOST", "host", long, long):
            node = await stack.enter_async_context(new_node())
            member = here.joined(node, wish)
            names.append((await stack.enter_async_context(member)).me.name)
    assert names == ["HOST-2", "host-3", long, "x" * 30 + "-2"]


async def test_one_id_at_two_places_is_one_person(anyio_backend: str) -> None:
    identity = Identity.create()
    async with (
        hall() as here,
        Node(identity, config=config()) as a,
        Node(identity, config=config()) as b,
    ):
        async with here.joined(a, "ann") as first:
            async with here.joined(b, "another") as second:
                assert second.me == first.me
                await second.say("from there")
                assert (await next_of(first, "text")).person == first.me
            assert here.names == ["Host", "ann"]
            await first.say("still here")
        await eventually(lambda: here.names == ["Host"])
    assert [kind for kind, _, _ in here.seen] == ["join", "text", "text", "leave"]


async def test_claimed_author_is_ignored(anyio_backend: str) -> None:
    async with hall() as here, new_node() as a, new_node() as eve:
        peer = await here.guest(eve)
        claim = {"name": "eve", "id": str(a.node_id), "from": {"id": str(a.node_id)}}
        async with peer.subscribe("chat.lobby", claim) as sub:
            assert isinstance(sub.data, dict)
            assert sub.data["you"] == {"id": str(eve.node_id), "name": "eve"}
            await peer.call("chat.lobby.say", "hi")
            assert here.seen[-1] == ("text", "eve", "hi")


async def test_only_members_may_send_messages(anyio_backend: str) -> None:
    async with hall() as here, new_node() as a, meeting(a, here.node) as (link, peer):
        with pytest.raises(CallRefused) as caught:
            await peer.call("chat.lobby.say", "hi")
        assert caught.value.code == 20
        async with join_room(link, "lobby", "ann") as ann:
            await ann.say("hi")
        with pytest.raises(CallRefused) as caught:
            await peer.call("chat.lobby.say", "hi")
        assert caught.value.code == 20


@pytest.mark.parametrize(
    ("text", "code"), [("", 23), (None, 23), (b"hi", 23), (["hi"], 23), ("x" * 4_097, 21)]
)
async def test_invalid_messages(anyio_backend: str, text: object, code: int) -> None:
    async with (
        hall() as here,
        new_node() as a,
        meeting(a, here.node) as (link, peer),
        join_room(link, "lobby", "ann") as ann,
    ):
        with pytest.raises(CallRefused) as caught:
            await peer.call("chat.lobby.say", text)  # type: ignore[call-overload]  # on purpose
        assert caught.value.code == code
        await ann.say("x" * 4_096)
    assert [kind for kind, _, _ in here.seen][:2] == ["join", "text"]


@pytest.mark.parametrize("data", [None, "ann", {}, {"name": 5}, {"name": "\x1b[2J"}, {"name": ""}])
async def test_a_name_that_is_none(anyio_backend: str, data: object) -> None:
    async with hall() as here, new_node() as a:
        peer = await here.guest(a)
        with pytest.raises(SubscribeRefused) as caught:
            await peer.subscribe("chat.lobby", data).__aenter__()  # type: ignore[call-overload]  # as above
        assert "a name" in str(caught.value.data)
        assert here.names == ["Host"]


async def test_too_much_is_refused_for_a_while(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        hall() as here,
        new_node() as a,
        new_node() as b,
        meeting(a, here.node) as (link, peer),
    ):
        async with (
            join_room(link, "lobby", "ann") as ann,
            here.joined(b, "bob") as bob,
        ):
            for number in range(RATE_COUNT - 1):
                await ann.say(str(number))
            with pytest.raises(CallRefused) as caught:
                await ann.say("too much")
            assert caught.value.code == 19
            await bob.say("each has a separate rate")
        with pytest.raises(SubscribeRefused, match="refused"):  # not even after rejoining
            await peer.subscribe("chat.lobby", {"name": "ann"}).__aenter__()
        now = anyio.current_time()
        monkeypatch.setattr(
            "parley._node.apps.chat.room.anyio.current_time", lambda: now + RATE_SECONDS + 1
        )
        async with join_room(link, "lobby", "ann") as ann:
            await ann.say("later")


async def test_a_full_room(anyio_backend: str) -> None:
    async with (
        hall(limit=1) as here,
        new_node() as a,
        new_node() as b,
        meeting(b, here.node) as (link, other),
    ):
        async with here.joined(a, "ann"):
            with pytest.raises(SubscribeRefused) as caught:
                await other.subscribe("chat.lobby", {"name": "bob"}).__aenter__()
            assert str(caught.value.data).startswith("the room is full: it has ")
        await eventually(lambda: here.names == ["Host"])
        async with join_room(link, "lobby", "bob") as bob:
            await bob.say("there is room")


async def test_one_id_does_not_fill_a_room(anyio_backend: str) -> None:
    async with hall(limit=6) as here, new_node() as a, new_node() as b, AsyncExitStack() as stack:
        for number in range(ID_LIMIT + 1):
            peer = await here.guest(a)
            joining = peer.subscribe("chat.lobby", {"name": f"ann{number}"})
            if number < ID_LIMIT:
                await stack.enter_async_context(joining)
                continue
            with pytest.raises(SubscribeRefused) as caught:
                await joining.__aenter__()
            assert "too many connections" in str(caught.value.data)
        async with here.joined(b, "bob") as bob:
            await bob.say("there is room")


async def test_lost_connection_leaves_the_room(anyio_backend: str) -> None:
    async with hall() as here, new_node() as a, new_node() as b:
        peer = await here.guest(a)
        async with here.joined(b, "bob") as bob:
            async with peer.subscribe("chat.lobby", {"name": "ann"}):
                assert (await next_of(bob, "join")).person.name == "bob"
                assert (await next_of(bob, "join")).person.name == "ann"
                peer.core.receive_eof(peer.backend.now())  # the connection is cut
                peer.driver.step()
                assert (await next_of(bob, "leave")).person.name == "ann"
            assert here.names == ["Host", "bob"]


async def test_joining_requires_a_node_id(anyio_backend: str) -> None:
    plain = NodeConfig(plaintext="only")
    with anyio.fail_after(PATIENCE):
        async with (
            Node(Identity.create(), config=plain) as host,
            Node(Identity.create(), config=plain) as guest,
        ):
            room = Room(host, "lobby", "Host", lambda _: None)
            peer, _ = await connect_nodes(guest, host)
            with pytest.raises(SubscribeRefused) as caught:
                await peer.subscribe("chat.lobby", {"name": "ann"}).__aenter__()
            assert "plaintext" in str(caught.value.data)
            assert room.people == [room.host]


@pytest.mark.parametrize(
    "welcome", [None, "hi", {}, {"you": 1, "people": []}, {"you": {"id": "x", "name": "y"}}]
)
async def test_topic_that_is_not_a_chat_room(anyio_backend: str, welcome: object) -> None:
    with anyio.fail_after(PATIENCE):
        async with (
            new_node() as host,
            new_node() as guest,
            meeting(guest, host) as (link, peer),
        ):
            host.topic("chat.lobby").on_subscribe(lambda request: welcome)
            with pytest.raises(ParleyError, match="no chat room"):
                async with join_room(link, "lobby", "ann"):
                    raise AssertionError("it is none")
            assert await peer.ping() < PATIENCE


async def test_nonsense_from_a_host_is_passed_over(anyio_backend: str) -> None:
    with anyio.fail_after(PATIENCE):
        async with (
            new_node() as host,
            new_node() as guest,
            meeting(guest, host) as (link, _),
        ):
            you = Person(guest.node_id, "ann")
            topic = host.topic("chat.lobby")
            topic.on_subscribe(lambda request: {"you": you.encode(), "people": []})
            async with join_room(link, "lobby", "ann") as ann:
                forged = {"id": str(host.node_id), "name": "x\r\nbob: hi"}
                for note in (None, 5, {"kind": "text", "from": forged, "text": "x"}):
                    await topic.publish(note)
                await topic.publish(Message("text", you, "sense").encode())
                assert (await next_of(ann, "text")).text == "sense"


class Inn:
    """A room on a server that restarts; its guests return over links."""

    def __init__(self, tasks: TaskGroup) -> None:
        self.said: list[tuple[str, str]] = []
        self.room: Room | None = None
        self.returns: list[str] = []
        self._tasks = tasks

    def offer(self, node: Node) -> None:
        """Create the room after a start."""
        self.room = room = Room(node, "lobby", "Host", self._note)
        self._tasks.start_soon(room.run)

    def _note(self, message: Message) -> None:
        if message.kind == "text":
            self.said.append((message.person.name, message.text))

    async def read(self, member: Member) -> None:
        """Read all events, and record each return."""
        member.on_return = lambda: self.returns.append(member.me.name)
        async for _ in member:
            pass


def names_of(place: Member | Room) -> list[str]:
    return sorted(person.name for person in place.people)


async def test_members_rejoin_after_a_restart(anyio_backend: str) -> None:
    everybody = ["Host", "ann", "ann-2"]
    async with anyio.create_task_group() as tasks:
        inn = Inn(tasks)
        async with (
            serving(inn.offer) as server,
            new_node() as a,
            new_node() as b,
            a.link(server.address, pauses=QUICK) as ann_s,
            b.link(server.address, pauses=QUICK) as bob_s,
            join_room(ann_s, "lobby", "ann") as ann,
            join_room(bob_s, "lobby", "ann") as other,
        ):
            assert (ann.me.name, other.me.name) == ("ann", "ann-2")
            reading = [await started(tasks, partial(inn.read, one)) for one in (ann, other)]
            for end in (server.stop, server.kill):
                await end()
                inn.returns.clear()
                async with anyio.create_task_group() as saying:
                    saying.start_soon(other.say, "while nobody was there")
                    await settled()
                    assert inn.said == []
                    await server.start()
                await eventually(lambda: sorted(inn.returns) == ["ann", "ann-2"])
                await eventually(lambda: names_of(ann) == names_of(other) == everybody)
                assert inn.said.pop() == ("ann-2", "while nobody was there")
            assert inn.room is not None
            assert names_of(inn.room) == everybody
            inn.room.topic.close()
            await eventually(lambda: reading == [[None], [None]])
            assert ann.is_over
        tasks.cancel_scope.cancel()


async def test_lines_typed_while_the_room_is_unreachable(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line is sent, or an error reports that it was not sent or that the outcome is unknown."""

    def offer(node: Node) -> None:
        topic = node.topic("chat.lobby")
        you = Person(guest.node_id, "ann")
        topic.on_subscribe(lambda request: {"you": you.encode(), "people": []} if good else None)

        @node.on_call("chat.lobby.say")
        async def say(call: Call) -> None:
            heard.set()
            await anyio.sleep_forever()

    good, heard = True, anyio.Event()
    async with (
        new_node() as guest,
        serving(offer) as server,
        guest.link(server.address, pauses=QUICK) as link,
        anyio.create_task_group() as tasks,
        join_room(link, "lobby", "ann") as ann,
    ):
        under_way = await started(tasks, lambda: ann.say("do you hear me?"))
        await heard.wait()
        await server.kill()
        await eventually(lambda: bool(under_way))
        assert isinstance(under_way[0], PeerClosedError)

        monkeypatch.setattr(member_module, "SAY_TIMEOUT", 0.01)
        with pytest.raises(UnreachableError, match="not in the room"):
            await ann.say("nobody there")

        # Then the name no longer belongs to a room.
        good = False
        await server.start()
        with pytest.raises(ParleyError, match="no chat room"):
            await anext(ann)
