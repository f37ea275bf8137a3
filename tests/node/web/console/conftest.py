"""Shared by the tests of the console: a served console, and the browser's part of its protocol."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from parley._node.web.console.app import KEY_HEADER
from parley._node.web.console.server import ServedConsole


class Visitor:
    """A page of a console without a browser: it has the cookie and the key of a session."""

    def __init__(self, http: httpx2.AsyncClient, url: str) -> None:
        self.http = http
        self.headers = {"origin": url}

    async def enter(self, link: str) -> httpx2.Response:
        """Open a link."""
        answer = await self.post("/enter", token=link.rpartition("=")[2])
        if answer.status_code == 200:
            self.headers[KEY_HEADER] = answer.json()["key"]
        return answer

    async def get(self, path: str, **query: str) -> httpx2.Response:
        """Send a request like the page."""
        return await self.http.get(path, params=query, headers=self.headers)

    async def post(self, path: str, **said: Any) -> httpx2.Response:
        """Post JSON like the page."""
        return await self.http.post(path, json=said, headers=self.headers)

    async def do(self, action: str, **said: Any) -> tuple[int, str]:
        """Run an action; return the status and the sentence."""
        answer = await self.post(f"/api/do/{action}", **said)
        found = answer.json()
        return answer.status_code, found.get("done") or found["error"]


@asynccontextmanager
async def visiting(
    served: ServedConsole, *, may_act: bool = False, enters: bool = True
) -> AsyncIterator[Visitor]:
    """Yield a visitor of a console, who has opened a link unless `enters` is False."""
    async with httpx2.AsyncClient(base_url=served.url) as http:
        visitor = Visitor(http, served.url)
        if enters:
            assert (await visitor.enter(served.link(may_act=may_act))).status_code == 200
        yield visitor
