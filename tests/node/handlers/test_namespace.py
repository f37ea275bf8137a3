"""Tests of node/handlers/registry.py: handlers that belong together, as a class."""

import pytest

from parley import CallRefused, NamedEvent, Namespace, on_event
from parley._node.errors import ConfigError, ParleyError
from tests.node.network import meeting, new_node

pytestmark = pytest.mark.anyio


class Game(Namespace):
    """Three events, one of them without permitted peers."""

    name = "game"

    def __init__(self, start: int) -> None:
        super().__init__()
        self.score = start

    @on_event("add")
    async def add(self, event: NamedEvent) -> int:
        self.score += int(str(event.data))
        return self.score

    @on_event("admin.*", allow=["admin"])
    def admin(self, event: NamedEvent) -> str:
        return event.name

    @on_event("rules", concurrency=1)
    def rules(self, event: NamedEvent) -> str:
        return "none"

    def no_handler(self, event: NamedEvent) -> str:
        return "never called"


async def test_a_class_of_handlers() -> None:
    async with meeting() as met:
        game = Game(5)
        met.server.add_namespace(game)
        met.server.on("add")(lambda event: "another")

        async def ask(name: str, data: object = None) -> object:
            return (await met.peer.emit(name, data, namespace="game").reply()).data  # type: ignore[arg-type]  # any value

        assert [await ask("add", 2), await ask("add", 3), game.score] == [7, 10, 10]
        assert (await met.peer.emit("add", 1).reply()).data == "another"
        assert [await ask("rules"), await ask("no_handler"), await ask("add2")] == [
            "none",
            None,
            None,
        ]
        with pytest.raises(CallRefused) as caught:
            await ask("admin.kick")
        assert caught.value.code == 20
        met.server.roles.assign(met.client.node_id, "admin")
        assert await ask("admin.kick") == "admin.kick"


class Chess(Game):
    """Overrides one handler, has one more."""

    name = "chess"

    @on_event("add")
    async def add(self, event: NamedEvent) -> int:
        return -1

    @on_event("mate")
    def mate(self, event: NamedEvent) -> str:
        return "yes"


async def test_a_subclass_has_the_handlers_of_its_base() -> None:
    async with meeting() as met:
        for namespace in (Game(0), Chess(0)):
            met.server.add_namespace(namespace)
        answers = [
            (await met.peer.emit(name, 1, namespace="chess").reply()).data
            for name in ("add", "mate", "rules")
        ]
        assert answers == [-1, "yes", "none"]
        assert (await met.peer.emit("mate", namespace="game").reply()).data is None


def test_what_is_refused() -> None:
    class Nameless(Namespace):
        """The default namespace has no class."""

    class Twice(Namespace):
        """One event, two handlers."""

        name = "twice"

        @on_event("a")
        def one(self, event: NamedEvent) -> None:
            """The first."""

        @on_event("a")
        def other(self, event: NamedEvent) -> None:
            """The second."""

    class Wrong(Namespace):
        """An option out of its range."""

        name = "wrong"

        @on_event("a", concurrency=0)
        def one(self, event: NamedEvent) -> None:
            """Never to run."""

    node = new_node()
    with pytest.raises(ConfigError, match="Nameless"):
        node.add_namespace(Nameless())
    with pytest.raises(ParleyError, match="event of 'twice' 'a' already has a handler"):
        node.add_namespace(Twice())
    with pytest.raises(ConfigError, match="concurrency"):
        node.add_namespace(Wrong())
    with pytest.raises(ConfigError, match="cannot use 5 as the name of a namespace"):
        node.on("a", namespace=5)  # type: ignore[arg-type]  # that is the test
    with pytest.raises(ConfigError, match="cannot register a handler of 5: the name must be str"):
        node.on(5)(print)  # type: ignore[arg-type]  # that is the test
    node.on("b")(print)
    with pytest.raises(ParleyError, match="for event 'b': it has one already"):
        node.on("b")(print)
    node.on("b", namespace="other")(print)
