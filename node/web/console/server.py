"""Serves the console on an address of this machine."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from parley._crypto.randomness import random_bytes
from parley._node.errors import FileError, InsecureAddressError, os_reason
from parley._node.gateways.server import is_local
from parley._node.transport.address import Address
from parley._node.web.console.app import ConsoleApp
from parley._node.web.console.console import Console
from parley._node.web.console.endpoints import ConsoleEndpoint, link_to, page_in, write_private
from parley._node.web.console.sessions import SECRET_SIZE, ConsoleSessions
from parley._node.web.http_server import WebLimits, serve_asgi

LIMITS: Final = WebLimits(connections=32)


class ServedConsole:
    """A console served at `url`."""

    def __init__(self, console: Console, sessions: ConsoleSessions, url: str, secret: str) -> None:
        self.url = url
        self.sessions = sessions
        self._console = console
        self._secret = secret

    def link(self, *, may_act: bool = False) -> str:
        """Return a link that opens the console once, within 10 minutes, with or without actions."""
        return link_to(self.url, self.sessions.make_link(self._console.now(), may_act=may_act))

    @contextmanager
    def found_in(self, directory: Path) -> Iterator[None]:
        """Write a file with which `request_link` finds this console, and finally remove it.

        Raises:
            FileError: the file cannot be written.
        """
        place = ConsoleEndpoint(self.url, str(self._console.node.node_id), self._secret)
        path = directory / f"{place.port}.json"
        try:
            directory.mkdir(0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(
                f"cannot create the directory {str(directory)!r}: {os_reason(error)}"
            ) from error
        write_private(path, json.dumps(asdict(place)))
        try:
            yield
        finally:
            for made in (path, page_in(directory, place.port)):
                made.unlink(missing_ok=True)


@asynccontextmanager
async def serve_console(console: Console, address: str) -> AsyncIterator[ServedConsole]:
    """Serve a console inside the block, on a `HOST:PORT` that only this machine can reach.

    Example:

        from parley.console import Console, serve_console

        async with serve_console(Console(node), "127.0.0.1:0") as served:
            print(served.link(may_act=True))

    Raises:
        InsecureAddressError: other machines could reach the address.
        AddressError: the address is malformed.
        UnreachableError: the server cannot listen on the address.
    """
    place = Address.parse_web(address)
    if not is_local(place):
        raise InsecureAddressError(str(place))
    sessions, secret = ConsoleSessions(random_bytes), random_bytes(SECRET_SIZE).hex()
    hosts: set[str] = set()
    app = ConsoleApp(console, sessions, secret).app(hosts)
    async with console, serve_asgi(app, address, limits=LIMITS) as url:
        port = urlsplit(url).port
        hosts |= {urlsplit(url).netloc, f"localhost:{port}"}
        yield ServedConsole(console, sessions, url, secret)
