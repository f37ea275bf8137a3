"""How `parley run` loads an application, and the lifetime of its context manager."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from parley._node.cli.options import NodeOptions
from parley._node.cli.serve.application import Application
from parley._node.errors import ConfigError, UnreachableError
from parley._node.node import Node
from tests.node.network import PATIENCE, meeting, new_node

FUNCTION = """
from parley import Node

def app(node):
    node.on_call("greet")(lambda call: "hello")

async def later(node):
    app(node)

def wrong(node):
    return 7

number = 7
"""


@pytest.fixture(autouse=True)
def own_modules() -> Iterator[None]:
    """Modules that a test imports are gone after it."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("shop_"):
            del sys.modules[name]


def module(directory: Path, text: str, name: str = "shop_a") -> str:
    (directory / f"{name}.py").write_text(text)
    return name


def options(**given: Any) -> NodeOptions:
    made = NodeOptions(**given)
    return made.with_settings(made.load())


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["", ":app", ":later"])
async def test_a_function_is_given_the_node(anyio_backend: str, tmp_path: Path, name: str) -> None:
    application = Application(module(tmp_path, FUNCTION) + name, tmp_path)
    async with meeting() as met, application.running(met.server):
        assert await met.peer.call("greet", timeout=5) == "hello"
        assert met.server.handlers.calls.has("parley.topics")


@pytest.mark.anyio
async def test_what_is_offered_need_not_be_told(anyio_backend: str, tmp_path: Path) -> None:
    name = module(tmp_path, FUNCTION)
    async with new_node() as node, Application(name, tmp_path, offers_topics=False).running(node):
        assert not node.handlers.calls.has("parley.topics")
    async with new_node() as node:
        node.offer_topics(allow="friend")
        async with Application(name, tmp_path).running(node):
            pass  # as the application has it
    async with new_node() as node:
        with pytest.raises(ConfigError, match="is @asynccontextmanager missing"):
            await Application(f"{name}:wrong", tmp_path).running(node).__aenter__()


FAILING = """
from contextlib import asynccontextmanager
from parley.errors import UnreachableError

def app(node):
    node.handler

async def later(node):
    open("/proc/nowhere/shop.db")

@asynccontextmanager
async def opened(node):
    raise ValueError("no database")
    yield

def elsewhere(node):
    raise UnreachableError("nobody is there")
"""


@pytest.mark.anyio
async def test_a_function_that_fails_is_no_bug_of_parley_s(
    anyio_backend: str, tmp_path: Path
) -> None:
    place = f"{tmp_path}/shop_failing.py"
    name = module(tmp_path, FAILING, "shop_failing")
    async with new_node() as node:
        for function, why in (
            ("app", f"AttributeError: 'Node' object has no attribute 'handler' ({place}, line 6)"),
            (
                "later",
                f"[Errno 2] No such file or directory: '/proc/nowhere/shop.db' ({place}, line 9)",
            ),
            ("opened", f"ValueError: no database ({place}, line 13)"),
        ):
            with pytest.raises(ConfigError) as failed:
                await Application(f"{name}:{function}", tmp_path).running(node).__aenter__()
            assert str(failed.value).startswith(f"cannot run '{name}:{function}': ")
            assert str(failed.value).endswith(why)
        with pytest.raises(UnreachableError, match="nobody is there"):
            await Application(f"{name}:elsewhere", tmp_path).running(node).__aenter__()


LIFESPAN = """
from contextlib import asynccontextmanager
import anyio

seen = []
begun = anyio.Event()

@asynccontextmanager
async def app(node):
    assert node.backend
    @node.on_call("work")
    async def work(call):
        begun.set()
        await anyio.sleep(0.02)
        seen.append("worked")
        return "done"
    seen.append("opened")
    yield
    seen.append("closed")
"""


@pytest.mark.anyio
async def test_what_it_opened_is_there_until_the_node_has_drained(
    anyio_backend: str, tmp_path: Path
) -> None:
    application = Application(f"{module(tmp_path, LIFESPAN, 'shop_life')}:app", tmp_path)
    shop, answers = sys.modules["shop_life"], []
    with anyio.fail_after(PATIENCE):
        async with meeting(drain_timeout=5.0) as met, anyio.create_task_group() as tasks:

            async def ask() -> None:
                answers.append(await met.peer.call("work", timeout=5))

            async with application.running(met.server):
                tasks.start_soon(ask)
                await shop.begun.wait()
    assert (answers, shop.seen) == (["done"], ["opened", "worked", "closed"])


def test_a_node_is_as_its_module_made_it(tmp_path: Path) -> None:
    text = "from parley import Identity, Node\nnode = Node(Identity.create())\n"
    application = Application(module(tmp_path, text), tmp_path)
    own = application.own_node(options(loop="trio", log_level="info"))
    assert isinstance(own, Node)
    with pytest.raises(ConfigError, match="cannot apply --plaintext, --role to 'shop_a'"):
        application.own_node(options(role="server", plaintext=True))
    with pytest.raises(ConfigError, match="cannot apply --identity to 'shop_a'"):
        application.own_node(options(identity_path=tmp_path))


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("", "invalid MODULE:NAME"),
        ("shop_a.py", "invalid MODULE:NAME"),
        ("./shop_a", "invalid MODULE:NAME"),
        ("shop_a:", "invalid MODULE:NAME"),
        ("shop_none", "cannot import the module 'shop_none': it does not exist in "),
        ("shop_a.sub:app", "cannot import the module 'shop_a.sub': it does not exist in "),
        ("parley.errors:node", "cannot run 'parley.errors': the name belongs to Parley"),
        ("shop_a:nothing", "cannot find nothing in the module 'shop_a'"),
        ("shop_b", "cannot find node or app in the module 'shop_b'"),
        ("shop_a:number", "is neither a Node nor a function"),
        ("shop_a:Node", "is neither a Node nor a function"),
        (
            "shop_c",
            r"cannot import the module 'shop_c': ZeroDivisionError: .* \(.*shop_c.py, line 2\)",
        ),
        ("shop_d", r"cannot import the module 'shop_d': SyntaxError: .* \(.*shop_d.py, line 1\)"),
        (
            "shop_e",
            r"cannot import the module 'shop_e': ModuleNotFoundError: .*shop_e.py, line 1\)",
        ),
    ],
)
def test_what_is_not_there_is_one_sentence(tmp_path: Path, target: str, text: str) -> None:
    module(tmp_path, FUNCTION)
    module(tmp_path, "", "shop_b")
    module(tmp_path, "\n1 / 0\n", "shop_c")
    module(tmp_path, "x = = 1\n", "shop_d")
    module(tmp_path, "import no_such_module\n", "shop_e")
    with pytest.raises(ConfigError, match=text):
        Application(target, tmp_path)
