"""`parley pub`: publish each line of standard input as a note."""

from contextlib import aclosing
from dataclasses import dataclass

from parley._lbm.codec import Encodable
from parley._lbm.errors import LbmEncodeError
from parley._node.cli.options import DEFAULT_ADDRESS, NodeOptions
from parley._node.cli.output import Output
from parley._node.cli.param_types import parse_json
from parley._node.cli.run import Uvloop, make_node, run
from parley._node.cli.standard_io import read_lines, stdin_descriptor
from parley._node.errors import ConfigError, FileError
from parley._node.handlers.topic import Topic
from parley._node.messaging.fanout import Slow
from parley._node.protocol.errors import PayloadTooLargeError

# Seconds to wait for a slow subscriber; the input waits meanwhile.
PATIENCE = 10.0
# Bytes of a payload besides the text of its note.
_OVERHEAD = 64


@dataclass(frozen=True, kw_only=True)
class PubOptions:
    """The options of `parley pub`."""

    topic: str
    listen: list[str] | None
    wait: int
    json_lines: bool
    slow: Slow
    buffer: int
    patience: float
    keep: int | None


def pub(options: NodeOptions, given: PubOptions) -> None:
    descriptor = stdin_descriptor()
    if not 0 <= given.patience <= 1e9:
        raise ConfigError(f"cannot use --patience {given.patience:g}: it must be 0 to 1e9 seconds")

    async def publishing(options: NodeOptions, out: Output) -> None:
        async with make_node(options, options.listening_trust()) as node:
            published = node.topic(
                given.topic,
                slow=given.slow,
                buffer=given.buffer,
                patience=given.patience,
                keep=given.keep,
            )
            addresses = [
                await node.listen(address) for address in given.listen or [DEFAULT_ADDRESS]
            ]
            for address in addresses:
                out.remark(f"listening on {address}")
            out.event("ready", node_id=str(node.node_id), addresses=addresses, topic=given.topic)
            await published.until(lambda: len(published.subscribers) >= given.wait)
            longest = node.config.limits.max_payload - _OVERHEAD
            notes, problem = 0, None
            try:
                async with aclosing(read_lines(descriptor, longest)) as lines:
                    async for line in lines:
                        if await _publish(published, line, given.json_lines, notes + 1):
                            notes += 1
            except FileError as error:
                problem = error  # the lines before it are published
            await published.finish()
        if problem is not None:
            raise problem
        out.done(notes=notes, lost=published.dropped)

    run(options, publishing, log_level="warning", uvloop=Uvloop.IMPOSSIBLE)


async def _publish(topic: Topic, line: bytes, as_json: bool, number: int) -> bool:
    """Publish a line; return False for an empty line of JSON."""
    if as_json and not line.strip():
        return False
    try:
        value = parse_json(line) if as_json else _text(line)
    except ValueError as error:
        raise FileError(f"cannot publish line {number:,}: {error}") from error
    try:
        await topic.publish(value)
    except (LbmEncodeError, PayloadTooLargeError) as error:
        raise FileError(f"cannot publish line {number:,}: {error}") from error
    return True


def _text(line: bytes) -> Encodable:
    """Return text, or bytes if the line is not UTF-8."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line
