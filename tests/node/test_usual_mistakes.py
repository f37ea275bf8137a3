"""Common mistakes with decorators, context managers and options raise an error immediately."""

import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from inspect import isawaitable
from pathlib import Path
from typing import Any

import anyio
import pytest

from parley import Backoff, Forward, Namespace, Node, Peer, Supercategory, on_event
from parley._node.testing import connected_nodes
from parley._node.testing.nodes import ConnectedNodes
from parley.errors import ConfigError, LbmEncodeError, LocalProtocolError, ParleyError
from tests.node.network import new_node
from tests.sweep import sweep

pytestmark = pytest.mark.anyio


# Decorators for a node and a name, and the number of arguments with which they call functions.

Register = Callable[[Node, str, Any], object]


def register_namespace(node: Node, name: str, function: Any) -> None:
    namespace = type("Events", (Namespace,), {"name": "space", "go": on_event(name)(function)})()
    node.add_namespace(namespace)


def registered_link_hook(hook: str) -> Register:
    def register(node: Node, name: str, function: Any) -> object:
        return getattr(node.link(f"memory://x#{new_node().node_id}"), hook)(function)

    return register


REGISTER: dict[str, tuple[Register, int]] = {
    "on_call": (lambda node, name, function: node.on_call(name)(function), 1),
    "on_stream": (lambda node, name, function: node.on_stream(name)(function), 1),
    "on": (lambda node, name, function: node.on(name)(function), 1),
    "on_subscribe": (lambda node, name, function: node.on_subscribe(name)(function), 1),
    "Topic.on_subscribe": (lambda node, name, f: node.topic(name).on_subscribe(f), 1),
    "Topic.tap": (lambda node, name, function: node.topic(name).tap(function), 2),
    "intercept": (lambda node, name, function: node.intercept("call")(function), 2),
    "Bus.handler": (
        lambda node, name, function: node.bus("sqlite:///x").handler("a.b", "g")(function),
        1,
    ),
    "Link.on_up": (registered_link_hook("on_up"), 1),
    "Link.on_down": (registered_link_hook("on_down"), 1),
    "Roles.ask": (lambda node, name, function: node.roles.ask(function), 1),
    "allow=": (lambda node, name, function: node.topic(name, allow=function), 2),
    "state=": (lambda node, name, function: node.topic(name, state=function), 0),
    "trust=": (lambda node, name, function: new_node(trust=function), 1),
}


async def too_many(one: Any, two: Any, three: Any) -> None: ...
async def too_few() -> None: ...
async def by_keyword(*, call: Any) -> None: ...
async def fine(*arguments: Any) -> None: ...
def yields(*arguments: Any) -> Iterator[int]:
    yield 1


MISTAKES: dict[str, Callable[[], Any]] = {
    "it accepts too many arguments": lambda: too_many,
    "its arguments have names": lambda: by_keyword,
    "it is a coroutine": lambda: fine(1),
    "it is a generator": lambda: yields,
    "it is a number": lambda: 5,
    "it is bytes": lambda: b"function",
}


@sweep("mistake", MISTAKES)
@sweep("decorator", REGISTER)
def test_functions_that_cannot_work(decorator: str, mistake: str) -> None:
    register, _ = REGISTER[decorator]
    with pytest.raises(
        ConfigError, match=r"must|expected|not a function|generator|coroutine|allow= takes"
    ):
        register(new_node(), "name", MISTAKES[mistake]())


@sweep("decorator", [name for name, (_, count) in REGISTER.items() if count])
def test_functions_without_parameters(decorator: str) -> None:
    with pytest.raises(ConfigError, match="must be callable with"):
        REGISTER[decorator][0](new_node(), "name", too_few)


PLAIN: dict[str, Callable[[Peer, Any], object]] = {
    "Topic.tap": lambda peer, function: new_node().topic("x").tap(function),
    "observer=": lambda peer, function: Node(new_node().identity, observer=function),
    "on_malformed=": lambda peer, function: peer.subscribe("x", on_malformed=function),
    "keep_last_by=": lambda peer, function: new_node().topic("x", keep_last_by=function),
}


@pytest.mark.parametrize("option", PLAIN)
async def test_async_functions_where_plain_ones_are_called(option: str, anyio_backend: str) -> None:
    async with connected_nodes() as nodes:
        with pytest.raises(ConfigError, match="it is asynchronous and would never be awaited"):
            PLAIN[option](nodes.peer, fine)


async def test_the_error_of_reading_a_subscription_that_was_left(anyio_backend: str) -> None:
    async with connected_nodes() as nodes:
        nodes.server.topic("x")
        async with nodes.peer.subscribe("x") as sub:
            pass
        with pytest.raises(anyio.ClosedResourceError, match="subscription to 'x' was left"):
            await anext(sub)


def test_namespace_raises_the_same_error_when_added() -> None:
    for function in (too_many, too_few, yields):
        with pytest.raises(ConfigError, match=r"must be callable with|without self|generator"):
            register_namespace(new_node(), "name", function)


@pytest.mark.parametrize("decorator", ["on_call", "on_stream", "on", "on_subscribe", "intercept"])
def test_decorators_without_parentheses(decorator: str) -> None:
    with pytest.raises(ConfigError, match=rf'write @node\.{decorator}\("(fine|call)"\)'):
        getattr(new_node(), decorator)(fine)


def test_a_method_of_a_namespace_without_parentheses() -> None:
    with pytest.raises(ConfigError, match=r'write @on_event\("fine"\)'):
        on_event(fine)  # type: ignore[arg-type]  # that is the test


@sweep("decorator", ["on_call", "on_stream", "on", "on_subscribe"])
@sweep("name", [None, 5, b"name", ["name"]])
def test_names_that_are_not_text(decorator: str, name: object) -> None:
    with pytest.raises(ConfigError, match="must be str"):
        getattr(new_node(), decorator)(name)


@pytest.mark.parametrize("decorator", ["on_call", "on_stream", "on", "on_subscribe"])
def test_duplicate_registrations(decorator: str) -> None:
    node = new_node()
    getattr(node, decorator)("name")(fine)
    with pytest.raises(ParleyError, match="already"):
        getattr(node, decorator)("name")(fine)


def test_functions_that_work() -> None:
    """Methods, partial functions, built-in functions and classes can be handlers."""
    node = new_node()
    functions: list[Any] = [fine, lambda call: None, "".format, str, print, [].append]
    for name, function in enumerate(functions):
        node.on_call(f"n{name}")(function)


# Context managers.

Make = Callable[[ConnectedNodes, str], Any]
READERS: dict[str, Make] = {
    "subscribe": lambda nodes, address: nodes.peer.subscribe("t"),
    "call_stream": lambda nodes, address: nodes.peer.call_stream("echo"),
    "Link.subscribe": lambda nodes, address: nodes.client.link(address).subscribe("t"),
    "consume": lambda nodes, address: nodes.server.bus(address).consume("a.b", "g"),
}


async def make(stack: AsyncExitStack, reader: str, tmp_path: Path) -> Any:
    nodes = await stack.enter_async_context(connected_nodes())
    nodes.server.topic("t")
    nodes.server.on_call("echo")(fine)
    address = f"memory://x#{nodes.server.node_id}"
    if reader == "consume":
        address = f"sqlite:///{tmp_path}/bus.db"
    return READERS[reader](nodes, address)


@pytest.mark.parametrize("reader", READERS)
async def test_objects_read_without_async_with(
    reader: str, tmp_path: Path, anyio_backend: str
) -> None:
    async with AsyncExitStack() as stack:
        made = await make(stack, reader, tmp_path)
        with anyio.fail_after(10), pytest.raises(ParleyError, match="async with"):
            async for _ in made:
                pass


@pytest.mark.parametrize("wait", ["over", "next_batch", "ready"])
async def test_waiting_without_async_with(wait: str, tmp_path: Path, anyio_backend: str) -> None:
    async with AsyncExitStack() as stack:
        made = await make(stack, "Link.subscribe" if wait == "ready" else "subscribe", tmp_path)
        with anyio.fail_after(10), pytest.raises(ParleyError, match="async with"):
            await getattr(made, wait)()


async def test_a_forward_and_a_link_that_are_not_entered(anyio_backend: str) -> None:
    async with connected_nodes() as nodes:
        address = f"memory://x#{nodes.server.node_id}"
        link = nodes.client.link(address)
        forward = Forward(nodes.client, "t", address)
        for wait in (link.ready, forward.linked, lambda: link.call("x")):
            with anyio.fail_after(10), pytest.raises(ParleyError, match="async with"):
                await wait()


@pytest.mark.parametrize("reader", ["subscribe", "call_stream", "consume"])
async def test_objects_entered_twice_or_used_after_exit(
    reader: str, tmp_path: Path, anyio_backend: str
) -> None:
    async with AsyncExitStack() as stack:
        made = await make(stack, reader, tmp_path)
        async with made:
            with pytest.raises(ParleyError, match=r"again|once"):
                await made.__aenter__()
        with anyio.fail_after(10), pytest.raises(anyio.ClosedResourceError):
            await anext(made)


@pytest.mark.parametrize("reader", READERS)
async def test_wrong_kind_of_context_manager(
    reader: str, tmp_path: Path, anyio_backend: str
) -> None:
    async with AsyncExitStack() as stack:
        made = await make(stack, reader, tmp_path)
        with pytest.raises(TypeError):
            await made
        with pytest.raises(TypeError), made:
            pass


async def test_an_event_that_is_never_sent(anyio_backend: str) -> None:
    async with connected_nodes() as nodes:
        with pytest.warns(RuntimeWarning, match="the event 'x' was never sent: await it"):
            nodes.peer.emit("x", 1)
        with pytest.raises(LocalProtocolError):
            nodes.peer.emit("x", namespace=5)  # type: ignore[arg-type]  # that is the test


# Options.


async def entered(context: Any) -> None:
    async with context:
        pass


def handler(peer: Peer, **options: Any) -> object:
    return new_node().bus("sqlite:///x").handler("a.b", "g", **options)


OPTIONS: dict[str, Callable[..., Awaitable[object] | object]] = {
    "topic": lambda peer, **options: new_node().topic("t", **options),
    "on_call": lambda peer, **options: new_node().on_call("t", **options)(fine),
    "handler": handler,
    "call": lambda peer, **options: peer.call("echo", **options),
    "publish": lambda peer, **options: peer.publish("t", **options),
    "call_stream": lambda peer, **options: entered(peer.call_stream("echo", **options)),
    "subscribe": lambda peer, **options: entered(peer.subscribe("t", **options)),
    "connect": lambda peer, **options: new_node().connect(f"memory://x#{peer.node_id}", **options),
    "link": lambda peer, **options: new_node().link(f"memory://x#{peer.node_id}", **options),
    "open_stream": lambda peer, **options: peer.open_stream("x", **options),
    "emit": lambda peer, **options: peer.emit("x", **options),
    "Backoff": lambda peer, **options: Backoff(**options),
    "Node": lambda peer, **options: Node(**{"identity": new_node().identity, **options}),
}
CLEAR = (ValueError, LbmEncodeError, ParleyError, TypeError)
# Not a number, too small, and not a whole number.
NO_NUMBER = ("5", b"x", [1], math.nan, True)
NEGATIVE = (*NO_NUMBER, -1)
COUNT = (None, *NEGATIVE, 0, 1.5, math.inf)
NOT_ITERABLE = (5, 1.5, True)
WRONG: list[tuple[str, str, tuple[Any, ...]]] = [
    ("topic", "buffer", COUNT),
    ("topic", "patience", (None, *NEGATIVE)),
    ("topic", "keep", COUNT[1:]),
    ("topic", "keep_bytes", COUNT[1:]),
    ("topic", "slow", (None, "x", 5, [])),
    ("topic", "allow", (*NOT_ITERABLE, "", [5], b"x")),
    ("topic", "writers", (*NOT_ITERABLE, "", [5], b"x")),
    ("topic", "supercategories", (*NOT_ITERABLE, "", "x", [], [5], next(iter(Supercategory)))),
    ("on_call", "concurrency", COUNT[1:]),
    ("on_call", "allow", (*NOT_ITERABLE, "", [5], b"x")),
    ("on_call", "supercategories", (*NOT_ITERABLE, "", "x", [], [5], next(iter(Supercategory)))),
    ("on_call", "once", (None, "yes", 1, 0)),
    ("handler", "concurrency", COUNT),
    ("handler", "max_attempts", COUNT[1:]),
    ("handler", "batch", COUNT),
    ("handler", "reclaim_after", (None, *NEGATIVE, 0)),
    ("handler", "retry_delay", (None, *NEGATIVE, 0)),
    ("handler", "start", (None, 5, 1.5, b"x", "x")),
    ("call", "timeout", NO_NUMBER),
    ("call", "headers", (5, "x", [1], {5: 1}, {b"x": 1})),
    ("call", "once", (None, "yes", 1, b"short")),
    ("publish", "timeout", NO_NUMBER),
    ("call_stream", "timeout", NO_NUMBER),
    ("call_stream", "window", (*NEGATIVE, 0, 1.5, math.inf)),
    ("call_stream", "headers", (5, "x", [1], {5: 1}, {b"x": 1})),
    ("subscribe", "timeout", NO_NUMBER),
    ("subscribe", "window", (*NEGATIVE, 0, 1.5, math.inf)),
    ("subscribe", "after", (5, "x", (1, 2), (b"12345678", 1.5), [b"12345678", 1])),
    ("connect", "timeout", (None, *NEGATIVE)),
    ("connect", "trust", (5, "tofu", [1])),
    ("connect", "also", (5, "tcp://127.0.0.1:1")),
    ("link", "trust", (5, "tofu", [1])),
    ("link", "pauses", (5, "x", [1])),
    ("link", "also", (5, "tcp://127.0.0.1:1")),
    ("open_stream", "answers", (None, 5, [1], [(1, 2)], ["ab"])),
    ("emit", "namespace", (None, 5, b"x")),
    ("emit", "format", (None, 5, b"x", "x", [])),
    ("Backoff", "first", (None, *NEGATIVE, 0)),
    ("Node", "identity", (None, "x", 5)),
    ("Node", "config", ("x", 0, 5, [], {"role": "peer"})),
    ("Node", "trust", (5, 0, "tofu", [1])),
    ("Node", "observer", (5, "x")),
    ("Node", "journal", (5, "x")),
    ("Node", "clock", (5, "x")),
]


async def use(what: str, peer: Peer, option: str, value: object) -> None:
    made = OPTIONS[what](peer, **{option: value})
    if isawaitable(made):
        await made


@sweep(("what", "option", "values"), WRONG)
async def test_values_that_an_option_cannot_have(
    what: str, option: str, values: tuple[Any, ...], anyio_backend: str
) -> None:
    async with connected_nodes() as nodes:
        nodes.server.on_call("echo")(lambda call: call.data)
        nodes.server.topic("t", writers=[nodes.client.node_id])
        for value in values:
            with anyio.fail_after(10), pytest.raises(CLEAR) as raised:
                await use(what, nodes.peer, option, value)
            # Python's own errors on operands don't name the option.
            text = str(raised.value)
            assert not any(words in text for words in ("instances of", "operand", "object is not"))
        assert nodes.peer.is_open
