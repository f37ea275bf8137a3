"""Where consoles of this user are, and how a program gets a link to one.

Whoever may read the user's files may have a new link: the secret for that stands in a file of the
user's alone, as long as the console is there.
"""

import http.client
import json
import os
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from parley._node.errors import ConfigError, FileError, UnreachableError, os_reason

TIMEOUT: Final = 5.0  # seconds that a console has to answer
LARGEST: Final = 4_096  # bytes of a place's file
MOST_PLACES: Final = 100
_PAGE: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={link}"><title>Parley</title>
<p><a href="{link}">Open the console</a></p></html>
"""


@dataclass(frozen=True)
class ConsoleEndpoint:
    """Where a console is, and the secret with which a link is asked for."""

    url: str
    node_id: str
    secret: str

    @property
    def port(self) -> int | None:
        """The port it is at."""
        return urlsplit(self.url).port


def page_in(directory: Path, port: int | None) -> Path:
    """The file that `write_page` writes for the console at a port."""
    return directory / f"{port}.html"


def write_page(directory: Path, place: ConsoleEndpoint, link: str) -> Path:
    """Write a page that leads to a link, for the user's browser alone: a program's arguments, as
    the link itself would be one, are seen by all users of a machine. The console removes it at its
    end; the link in it is worth nothing once it was opened.

    Raises:
        FileError: it cannot be written.
    """
    path = page_in(directory, place.port)
    write_private(path, _PAGE.format(link=escape(link)))
    return path


def write_private(path: Path, text: str) -> None:
    """Write a file that only the user may read, in place of one that is there; raises FileError."""
    try:
        path.unlink(missing_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
    except OSError as error:
        raise FileError(f"cannot write {path}: {os_reason(error)}") from error


def link_to(url: str, token: str) -> str:
    """The token stands where no server, no log and no other site sees it."""
    return f"{url}/#token={token}"


def find_consoles(directory: Path) -> list[ConsoleEndpoint]:
    """The consoles that say in a directory where they are; some may have ended without a word."""
    found = []
    for path in sorted(directory.glob("*.json"))[:MOST_PLACES]:
        try:
            with path.open("rb") as file:
                found.append(ConsoleEndpoint(**json.loads(file.read(LARGEST))))
        except (OSError, ValueError, TypeError):
            continue  # gone, or not ours
    return found


def request_link(place: ConsoleEndpoint, *, may_act: bool) -> str:
    """Ask a console for a link.

    Raises:
        UnreachableError: nobody answers there. ConfigError: it gives none.
    """
    parts = urlsplit(place.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT)
    headers = {"authorization": f"Bearer {place.secret}", "content-type": "application/json"}
    try:
        connection.request("POST", "/links", json.dumps({"may_act": may_act}), headers)
        answer = connection.getresponse()
        said = json.loads(answer.read(LARGEST))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise UnreachableError(f"no console answers at {place.url}") from error
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise ConfigError(f"the console at {place.url} gives no link: {said.get('error')}")
    return link_to(place.url, said["token"])
