"""The examples in docstrings of the public API run as they are.

Each runs in an async function in which `node` is a running node and `peer` is its connection to
another node, which serves the call `greet`, the topic `news` and the stream `upload`. The current
directory is empty.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

# zeroconf starts a process when it is first imported, which a quick test may not do.
import parley._node.discovery.mdns  # noqa: F401 - imported for the reason above
from parley import Call, Stream
from parley._node.testing import ConnectedNodes
from tests.api_pages import HIDDEN, PACKAGE, find
from tests.node.network import meeting

pytestmark = pytest.mark.anyio

_EXAMPLE = re.compile(r"^Examples?:\n\n((?:(?:    .*)?\n)+)", re.MULTILINE)


def documented() -> Iterator[tuple[str, Any]]:
    """Yield the public objects and their members, by dotted name."""
    for dotted in HIDDEN:
        found = find(dotted)
        if not (inspect.isclass(found) or inspect.isfunction(found)):
            continue
        yield dotted, found
        for name, member in vars(found).items() if inspect.isclass(found) else ():
            function = getattr(member, "__func__", getattr(member, "fget", member))
            if inspect.isfunction(function) and function.__module__.startswith(PACKAGE):
                yield f"{dotted}.{name}", function


def examples() -> dict[str, str]:
    found = {}
    for name, value in documented():
        for number, text in enumerate(_EXAMPLE.findall((inspect.getdoc(value) or "") + "\n")):
            found[f"{name} {number}" if number else name] = textwrap.dedent(text)
    return found


EXAMPLES = examples()


async def serve(met: ConnectedNodes) -> None:
    """Register what examples use."""
    server = met.server
    server.topic("news", keep=10)

    @server.on_call("greet")
    async def greet(call: Call) -> str:
        return f"hello {call.data!s}"

    @server.on_stream("upload")
    async def upload(stream: Stream) -> None:
        async for _ in stream:
            pass


@pytest.mark.parametrize("name", EXAMPLES)
async def test_an_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = compile(EXAMPLES[name], name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    async with meeting() as met:
        await serve(met)
        with anyio.fail_after(20):
            result = eval(code, {"node": met.client, "peer": met.peer, "__name__": name})  # noqa: S307 - our own examples
            if inspect.isawaitable(result):
                await result
