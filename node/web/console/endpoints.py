"""Finds the consoles of this user, and requests a link from one.

Every program that can read the user's files can get a link: while the console runs, a private file
contains the secret for it.
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

TIMEOUT: Final = 5.0  # The time for a console to answer, in seconds.
LARGEST: Final = 4_096  # The maximum size of an endpoint's file, in bytes.
MOST_PLACES: Final = 100
_PAGE: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={link}"><title>Parley</title>
<p><a href="{link}">Open the console</a></p></html>
"""


@dataclass(frozen=True)
class ConsoleEndpoint:
    """The address of a console, and the secret to request a link."""

    url: str
    node_id: str
    secret: str

    @property
    def port(self) -> int | None:
        return urlsplit(self.url).port


def page_in(directory: Path, port: int | None) -> Path:
    """Return the path of the file that `write_page` writes for the console at a port."""
    return directory / f"{port}.html"


def write_page(directory: Path, place: ConsoleEndpoint, link: str) -> Path:
    """Write a page, readable only by the user, that redirects to a link.

    A program's arguments, unlike this page, are visible to all users of a machine. The console
    removes the page when it stops. The link is useless once opened.

    Raises:
        FileError: the page cannot be written.
    """
    path = page_in(directory, place.port)
    write_private(path, _PAGE.format(link=escape(link)))
    return path


def write_private(path: Path, text: str) -> None:
    """Write a file that only the user can read, replacing an existing one; raise FileError."""
    try:
        path.unlink(missing_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
    except OSError as error:
        raise FileError(f"cannot write {path}: {os_reason(error)}") from error


def link_to(url: str, token: str) -> str:
    """Return a link; its token is in the fragment, which browsers do not send."""
    return f"{url}/#token={token}"


def find_consoles(directory: Path) -> list[ConsoleEndpoint]:
    """Return the consoles registered in a directory, which may include crashed ones."""
    found = []
    for path in sorted(directory.glob("*.json"))[:MOST_PLACES]:
        try:
            with path.open("rb") as file:
                found.append(ConsoleEndpoint(**json.loads(file.read(LARGEST))))
        except (OSError, ValueError, TypeError):
            continue  # Removed, or not ours.
    return found


def request_link(place: ConsoleEndpoint, *, may_act: bool) -> str:
    """Request a link from a console.

    Raises:
        UnreachableError: the console does not answer.
        ConfigError: the console refuses.
    """
    parts = urlsplit(place.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT)
    headers = {"authorization": f"Bearer {place.secret}", "content-type": "application/json"}
    try:
        connection.request("POST", "/links", json.dumps({"may_act": may_act}), headers)
        answer = connection.getresponse()
        said = json.loads(answer.read(LARGEST))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise UnreachableError(f"cannot connect to the console at {place.url}") from error
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise ConfigError(f"cannot get a link from the console at {place.url}: {said.get('error')}")
    return link_to(place.url, said["token"])
