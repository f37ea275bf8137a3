"""`parley` whose `serve` has a few topics more: they wait, refuse and misbehave.

Run as a program, it is `parley` in every other respect.
"""

import anyio

import parley._node.cli.serve.command
from parley._lbm.codec import Value
from parley._node.cli.main import main
from parley._node.errors import CallRefused
from parley._node.node import Node
from parley._node.remote.requests import Call

offer_builtin_calls = parley._node.cli.serve.command.offer_builtin_calls

HOSTILE = "\x1b]0;owned\x07\nparley: all is well\r\x1b[2J"
NESTED: dict[str, Value] = {
    "text": [b"caf\xc3\xa9", b"\xff\x00"],
    "deep": {"map": {"bytes": b"\x80"}, "numbers": {1: float("nan"), 2: float("-inf")}},
}


def offer_all(node: Node) -> None:
    """Offer the built-in calls and those of the tests."""
    offer_builtin_calls(node)

    @node.on_call("test.wait")
    async def wait(call: Call) -> str:
        print('{"event": "waiting"}', flush=True)
        try:
            await anyio.sleep(float(str(call.data)))
        except BaseException:
            print('{"event": "cancelled"}', flush=True)
            raise
        return "late"

    @node.on_call("test.nested")
    async def nested(call: Call) -> Value:
        return NESTED

    @node.on_call("test.hostile")
    async def hostile(call: Call) -> Value:
        return HOSTILE

    @node.on_call("test.refuse")
    async def refuse(call: Call) -> Value:
        raise CallRefused(64, call.data)

    @node.on_call("test.fail")
    async def fail(call: Call) -> Value:
        raise RuntimeError(HOSTILE)


if __name__ == "__main__":
    parley._node.cli.serve.command.offer_builtin_calls = offer_all
    main()
