"""`parley console`: print a link to the web console of a server on this machine.

Each link opens the console once. The server stores the console's address in files that only its own
user can read.
"""

import webbrowser
from pathlib import Path

from parley._node.cli.output import Output
from parley._node.errors import ConfigError, UnreachableError
from parley._node.trust.known_peers import default_known_peers
from parley._node.web.console.endpoints import (
    ConsoleEndpoint,
    find_consoles,
    request_link,
    write_page,
)


def console(act: bool, open_it: bool, port: int | None, as_json: bool) -> None:
    out = Output(as_json)
    found = _running(port, act=act)
    if not found:
        where = "" if port is None else f" at port {port}"
        raise ConfigError(
            f"cannot open a console: no console is running on this machine{where}; start one "
            "with: parley serve --console HOST:PORT"
        )
    if len(found) > 1:
        several = ", ".join(f"--port {place.port}" for place, _ in found)
        raise ConfigError(
            f"cannot choose one of {len(found)} running consoles; give one of: {several}"
        )
    ((place, link),) = found
    out.print(link)
    if open_it and not webbrowser.open(write_page(console_directory(), place, link).as_uri()):
        out.remark("cannot open a browser on this machine; open the link yourself")
    out.done(link=link, url=place.url, node_id=place.node_id, may_act=act)


def _running(port: int | None, *, act: bool) -> list[tuple[ConsoleEndpoint, str]]:
    """Return the consoles that respond, each with a link."""
    found = []
    for place in find_consoles(console_directory()):
        if port is None or place.port == port:
            try:
                found.append((place, request_link(place, may_act=act)))
            except UnreachableError:
                continue  # the server was killed and left its file
    return found


def console_directory() -> Path:
    """Return the directory of the consoles' address files; ConfigError without a home directory."""
    return default_known_peers().parent / "consoles"
