"""`parley send`: send files to a receiver, resuming interrupted transfers."""

from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from time import perf_counter

import anyio

from parley._node.apps.transfer.names import same_file_key
from parley._node.apps.transfer.sender import (
    OneSession,
    OpenSessions,
    Source,
    safe_name,
    send_over_link,
)
from parley._node.cli.context_file import MARK, resolve_address
from parley._node.cli.first_contact import open_node
from parley._node.cli.link import open_link
from parley._node.cli.options import NodeOptions
from parley._node.cli.output import Output
from parley._node.cli.run import peer_fields, run
from parley._node.cli.transfer.by_code import (
    Rendezvous,
    accept_by_code,
)
from parley._node.cli.transfer.display import Display
from parley._node.errors import CallRefused, ConfigError


def send(
    options: NodeOptions,
    files_and_address: list[str],
    retries: int,
    parallel: int,
    home: str | None,
    listen: list[str] | None,
    announced: bool | None,
) -> None:
    *names, last = files_and_address
    address = None
    if "://" in last or last.startswith(MARK):
        address, context = resolve_address(last)
        options = options if context is None else options.with_context(context)
    paths = [Path(name) for name in (names if address is not None else files_and_address)]
    _require_sendable(paths)
    if address is not None:
        if home or listen or announced is not None:
            raise ConfigError(
                f"cannot use --home, --listen or --announce with the address {last!r}: they "
                "apply to a code; leave the address or the options out"
            )
        command = partial(_to_address, address=address)
    else:
        if options.plaintext:
            raise ConfigError(
                "cannot use a code with --plaintext: peers prove no identity without encryption; "
                "give ADDR, or leave --plaintext out"
            )
        ways = Rendezvous.chosen(home, listen, announced)
        command = partial(_by_code, ways=ways)
    run(options, partial(command, paths=paths, retries=retries, parallel=parallel))


async def _to_address(
    options: NodeOptions,
    out: Output,
    *,
    address: str,
    paths: list[Path],
    retries: int,
    parallel: int,
) -> None:
    display, sent = Display(out, "->"), False
    async with _opened(out, paths) as sources:
        async with (
            open_node(options, out, address) as node,
            open_link(node, options, out, address, display.report, wanted=lambda: not sent) as link,
        ):
            with display.shown():
                refused = await _send_all(link, sources, display, retries, parallel)
            sent = True
        if refused:
            raise refused[0]


async def _by_code(
    options: NodeOptions,
    out: Output,
    *,
    ways: Rendezvous,
    paths: list[Path],
    retries: int,
    parallel: int,
) -> None:
    display = Display(out, "->")
    async with _opened(out, paths) as sources:
        async with accept_by_code(options, out, ways) as peer:
            out.event("connected", **peer_fields(peer))
            session = OneSession(peer)
            with display.shown():
                refused = await _send_all(session, sources, display, retries, parallel)
            await peer.close()
        if refused:
            raise refused[0]


@asynccontextmanager
async def _opened(out: Output, paths: list[Path]) -> AsyncIterator[list[Source]]:
    """Open and hash the files. Leaving the block reports that all were sent."""
    began = perf_counter()
    with ExitStack() as opened:
        sources = [opened.enter_context(await Source.open(path)) for path in paths]
        yield sources
        size = sum(source.offer.size for source in sources)
    out.done(files=len(sources), size=size, seconds=perf_counter() - began)


async def _send_all(
    link: OpenSessions, sources: Sequence[Source], display: Display, retries: int, parallel: int
) -> list[CallRefused]:
    """Send all files, and return the refusals."""
    refused: list[CallRefused] = []
    waiting = iter(sources)
    peer = await link.ready()
    who = str(peer.node_id or peer.name)

    async def work() -> None:
        for source in waiting:
            try:
                await send_over_link(link, source, display, retries)
            except CallRefused as error:
                refused.append(error)
                display.refused(source.offer.name, who, error)

    async with anyio.create_task_group() as tasks:
        for _ in range(min(parallel, len(sources))):
            tasks.start_soon(work)
    return refused


def _require_sendable(paths: Sequence[Path]) -> None:
    """Raise ConfigError for files that no receiver accepts."""
    if not paths:
        raise ConfigError(
            "cannot send: no file is given; give FILE... [ADDR], with the address last"
        )
    met: dict[str, Path] = {}
    for path in paths:
        other = met.setdefault(same_file_key(safe_name(path)), path)
        if other is not path:
            raise ConfigError(
                f"cannot send {other} and {path} together: they would have the same name there"
            )
