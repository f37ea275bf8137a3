"""`parley console`: a link to the console of a server that runs on this machine.

Each link opens the console once. Users who can read the files of the server's user can get one: the
files contain the address of the console.
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
        raise ConfigError(f"no console runs here{where}; parley serve --console HOST:PORT has one")
    if len(found) > 1:
        several = ", ".join(f"--port {place.port}" for place, _ in found)
        raise ConfigError(f"{len(found)} consoles run here, name one of them: {several}")
    ((place, link),) = found
    out.print(link)
    if open_it and not webbrowser.open(write_page(console_directory(), place, link).as_uri()):
        out.remark("cannot open a browser on this machine")
    out.done(link=link, url=place.url, node_id=place.node_id, may_act=act)


def _running(port: int | None, *, act: bool) -> list[tuple[ConsoleEndpoint, str]]:
    """Return the consoles that respond, each with a link."""
    found = []
    for place in find_consoles(console_directory()):
        if port is None or place.port == port:
            try:
                found.append((place, request_link(place, may_act=act)))
            except UnreachableError:
                continue  # it ended without a word
    return found


def console_directory() -> Path:
    """Return the directory of the files that say where consoles are; ConfigError without a home."""
    return default_known_peers().parent / "consoles"
