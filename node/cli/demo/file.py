"""The demo's file: sent while the keys change, and shown to have arrived unchanged.

What the other side received is compared by its hash.
"""

import hashlib
import json
import stat
from collections.abc import AsyncIterator
from importlib.metadata import metadata
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn

from parley._node.cli.demo.responder import FILE_LABEL
from parley._node.cli.output import Output
from parley._node.errors import FileError, ParleyError, os_reason
from parley._node.logs import one_line
from parley._node.peer.peer import Peer

PIECE = 64 * 1024


async def send_file(out: Output, peer: Peer, name: str, content: Path | bytes) -> dict[str, Any]:
    """Send it, change keys at a third of the way, rekey at two thirds."""
    size = (await anyio.Path(content).stat()).st_size if isinstance(content, Path) else len(content)
    digest, done, began = hashlib.sha256(), 0, perf_counter()
    columns = (
        TextColumn("file     {task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with out.bar(*columns, kept=True) as progress:
        bar = progress.add_task(shown(name), total=size)
        async with anyio.create_task_group() as tasks, peer.open_stream(FILE_LABEL) as stream:
            async for piece in _pieces(content, max(1, min(PIECE, size // 16))):
                before, done = done, done + len(piece)
                digest.update(piece)
                await stream.send(piece)
                progress.update(bar, completed=done)
                if before * 3 < size <= done * 3:
                    peer.update_keys()
                    out.event("key-update", at=done)
                if before * 3 < size * 2 <= done * 3:
                    tasks.start_soon(_rekey, out, peer, done)
            await stream.send_eof()
            receipt = json.loads(b"".join([piece async for piece in stream]))
    seconds = perf_counter() - began
    if done != size:
        raise FileError(f"{name} changed its size while it was being sent")
    if receipt != {"sha256": digest.hexdigest(), "size": size}:
        raise ParleyError(
            f"{name} was altered in transit: its SHA-256 is {digest.hexdigest()}, "
            f"and the receiver's is {one_line(str(receipt.get('sha256')))[:80]}"
        )
    result = {"name": name, "size": size, "seconds": seconds, "sha256": digest.hexdigest()}
    out.console.print(f"sha256   {digest.hexdigest()} on both sides")
    out.event("file", **result, match=True)
    return result


async def _rekey(out: Output, peer: Peer, at: int) -> None:
    number = await peer.rekey()
    out.event("rekey", number=number, at=at)


async def _pieces(content: Path | bytes, size: int) -> AsyncIterator[bytes]:
    if isinstance(content, bytes):
        for start in range(0, len(content), size):
            yield content[start : start + size]
        return
    async with await anyio.open_file(content, "rb") as file:
        while piece := await file.read(size):
            yield piece


def shown(name: str) -> str:
    """A file's name as rich shows it unchanged."""
    return escape(one_line(name))


def content_of(file: Path | None) -> tuple[str, Path | bytes]:
    """What to send: the file, or the README, which an installed package has as metadata."""
    if file is None:
        readme = Path(__file__).parents[4] / "README.md"
        if readme.is_file():
            return readme.name, readme
        return "README.md", str(metadata("parley-node").json["description"]).encode()
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise FileError(f"{file} is not a regular file")
        with file.open("rb"):
            return file.name, file
    except OSError as error:
        raise FileError(f"cannot read {file}: {os_reason(error)}") from error
