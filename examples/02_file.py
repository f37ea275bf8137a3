"""Send a file over a stream, with back-pressure and a checksum.

The sender writes the file to a stream piece by piece. The receiver stores the pieces and replies
with their SHA-256.

Run it with `uv run python examples/02_file.py [FILE]`.
"""

import hashlib
import sys
import tempfile
from pathlib import Path

import anyio

from parley import Identity, Node, Stream

PIECE = 64 * 1024


async def main(source: Path, target: Path) -> None:
    async with Node(Identity.create()) as sender, Node(Identity.create()) as receiver:

        @receiver.on_stream("file")
        async def take(stream: Stream) -> None:
            digest = hashlib.sha256()
            async with await anyio.open_file(target, "wb") as file:
                async for piece in stream:  # ends when the sender calls send_eof
                    digest.update(piece)
                    await file.write(piece)
            await stream.send(digest.hexdigest().encode())

        peer = await sender.connect(await receiver.listen("tcp://127.0.0.1:0"))
        digest = hashlib.sha256()
        async with peer.open_stream("file") as stream:
            async with await anyio.open_file(source, "rb") as file:
                while piece := await file.read(PIECE):
                    digest.update(piece)
                    await stream.send(piece)  # waits while the receiver is slow
            await stream.send_eof()
            received = b"".join([piece async for piece in stream]).decode()
        same = received == digest.hexdigest()
        size = (await anyio.Path(target).stat()).st_size
        print(f"{source.name}: {size} bytes, sha256 {'equal' if same else 'DIFFERENT'}")


if __name__ == "__main__":
    file = Path(sys.argv[1] if len(sys.argv) > 1 else __file__)
    with tempfile.TemporaryDirectory() as directory:
        anyio.run(main, file, Path(directory) / file.name)
