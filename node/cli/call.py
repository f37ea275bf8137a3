"""`parley call`: make a call to a node and print the response."""

import sys
from time import perf_counter

from parley._node.cli.exit_codes import LONGEST_QUOTE
from parley._node.cli.first_contact import connect
from parley._node.cli.options import NodeOptions
from parley._node.cli.output import Output, format_value, stdout_errors
from parley._node.cli.param_types import read_value
from parley._node.cli.run import Uvloop, run
from parley._node.errors import CallRefused, ConfigError


def call(
    options: NodeOptions,
    address: str,
    topic: str,
    data: str | None,
    data_json: str | None,
    timeout: float,
    raw: bool,
) -> None:
    if raw and options.as_json:
        raise ConfigError(
            "cannot use --raw with --json: they are two output formats; leave one of the options "
            "out"
        )
    if not timeout > 0:  # also rejects NaN
        raise ConfigError(f"cannot use --timeout {timeout:g}: it must be more than 0 seconds")
    value = read_value(data, data_json)

    async def calling(options: NodeOptions, out: Output) -> None:
        async with connect(options, out, address) as peer:
            start = perf_counter()
            try:
                answer = await peer.call(topic, value, timeout=timeout)
            except CallRefused as refused:
                _show_refusal(out, refused)
                raise
            seconds = perf_counter() - start
            out.effect = "the call was made and answered"
        if raw:
            with stdout_errors(out.effect):
                write_raw(answer)
        else:
            out.print(format_value(answer))
        out.done(code=0, kind="result", data=answer, seconds=seconds)

    run(options, calling, uvloop=Uvloop.NOT_WORTHWHILE)


def write_raw(answer: object) -> None:
    """Write a response to standard output: bytes unchanged, text as UTF-8, the rest as JSON."""
    data = answer if isinstance(answer, bytes) else format_value(answer).encode()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _show_refusal(out: Output, refused: CallRefused) -> None:
    """Print the data of a refusal that is too long for the error message."""
    shown = "" if refused.data is None else format_value(refused.data)
    if len(shown) > LONGEST_QUOTE:
        out.remark(shown)
