"""`Console`: the data that a node's page shows, cached for all clients.

Without clients, nothing is read. Data that requires a disk or a store is fetched in the background
every few seconds.
"""

import json
import logging
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import anyio
from anyio.abc import TaskGroup

from parley._crypto.identity import NodeId
from parley._node import VERSION
from parley._node.bus.address import without_password
from parley._node.bus.bus import Bus
from parley._node.errors import KnownPeersError
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.server.federation import Federation
from parley._node.transport.task_scope import own_task_group
from parley._node.trust.ended_ids import inheritances
from parley._node.trust.known_peers import KnownPeers
from parley._node.web.console.views import (
    PeerNumbers,
    buses_view,
    display_text,
    federation_view,
    journal_view,
    numbers_view,
    peer_view,
    peers_view,
    topics_view,
)

logger = logging.getLogger("parley.console")

# How long a reading is reused for all clients, in seconds; the same for fetched data, and for
# findings.
INTERVAL: Final = 1.0
FETCHED: Final = 3.0
FOUND: Final = 600.0
MOST_FINDINGS: Final = 200

Findings = Callable[[], Sequence[Mapping[str, str]]]


@dataclass
class Fetched:
    """The data fetched last: buses, names of nodes, and findings of `parley doctor`."""

    buses: list[dict[str, Any]]
    names: dict[NodeId, str]
    findings: list[dict[str, str]] | None  # None until the first check.


class Console:
    """The displayed data of `node` and its `federation`.

    Use it as an async context manager, inside the blocks of both.

    `known_peers` has the names of nodes. `findings` searches for problems in a thread; each has a
    `level`, a `subject`, a `text` and a remedy (`mend`). `on_drain` is called to stop the node
    gracefully; without it, the console cannot do that. A view is made every `interval` seconds.

    Example:

        from parley.console import Console, serve_console

        async with serve_console(Console(node), "127.0.0.1:0") as served:
            print(served.link())  # opens the console once, within 10 minutes
    """

    def __init__(
        self,
        node: Node,
        *,
        federation: Federation | None = None,
        known_peers: KnownPeers | None = None,
        findings: Findings | None = None,
        on_drain: Callable[[], None] | None = None,
    ) -> None:
        self.node = node
        self.federation = federation
        self.known_peers = known_peers
        self.on_drain = on_drain
        self.draining = False
        self.interval = INTERVAL
        self._find = findings
        self._numbers = PeerNumbers()
        self._fetched = Fetched([], {}, None)
        self._fetched_at = self._found_at = self._read_at = float("-inf")
        self._fetching = False
        self._encoded = b""
        self._began = 0.0
        self._tasks: TaskGroup | None = None  # Set inside the `async with` block.
        self._entered = AsyncExitStack()

    # Data.

    def now(self) -> float:
        """Return the time of the node's clock, in seconds."""
        return self.node.backend.now()

    def encoded(self) -> bytes:
        """Return the view as JSON, encoded once for all requests within an interval."""
        now = self.now()
        if now - self._read_at >= self.interval * 0.9:
            self._read_at = now
            self._encoded = json.dumps(self.view(), separators=(",", ":")).encode()
        return self._encoded

    def view(self) -> dict[str, Any]:
        """Return all live data as plain data."""
        self._fetch()
        node, fetched, now = self.node, self._fetched, self.now()
        return {
            "at": now,
            "node": {
                "id": str(node.node_id),
                "short": node.node_id.short,
                "name": display_text(fetched.names.get(node.node_id, "")),
                "role": node.config.role,
                "version": VERSION,
                "python": platform.python_version(),
                "addresses": [display_text(one) for one in node.addresses],
                "uptime": now - self._began,
                "turned_away": node.turned_away,
                "trust": display_text(node.trust.name),
                "draining": self.draining,
                "can_drain": self.on_drain is not None,
                "can_forget": self.known_peers is not None,
            },
            "peers": peers_view(node, self._numbers, fetched.names),
            "topics": topics_view(node),
            "numbers": numbers_view(node.metrics.collect()),
            "buses": fetched.buses,
            "journal": journal_view(node.journal),
            "federation": federation_view(node, self.federation, fetched.names),
            "findings": fetched.findings,
        }

    def peers(self, find: str) -> dict[str, Any]:
        """Return the peers with `find` in their ID, name, address or role."""
        return peers_view(self.node, self._numbers, self._fetched.names, find)

    def peer(self, number: int) -> dict[str, Any] | None:
        """Return all data of one peer, or None if it has disconnected."""
        peer = self.find_peer(number)
        return None if peer is None else peer_view(self.node, number, peer, self._fetched.names)

    # For actions.

    def find_peer(self, number: int) -> Peer | None:
        """Return the peer of a row, or None if it has disconnected."""
        return self._numbers.find(self.node.peers, number)

    def find_bus(self, address: str) -> Bus | None:
        """Return the bus shown under an address."""
        buses = self.node.buses.items()
        return next(
            (bus for url, bus in buses if display_text(without_password(url)) == address), None
        )

    def refresh(self) -> None:
        """Fetch everything again with the next view."""
        self._fetched_at = self._found_at = self._read_at = float("-inf")

    # Lifecycle.

    async def __aenter__(self) -> Self:
        self._began = self.now()
        self._entered.enter_context(self.node.metrics.watched())
        statements = self.node.statements
        statements.listeners.append(self.refresh)
        self._entered.callback(statements.listeners.remove, self.refresh)
        self._tasks = await self._entered.enter_async_context(own_task_group("the console"))
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self._tasks = None
        await self._entered.aclose()

    # Internal.

    def _fetch(self) -> None:
        now = self.now()
        due = not self._fetching and now - self._fetched_at >= FETCHED
        if due and self._tasks is not None:
            self._fetching, self._fetched_at = True, now
            self._tasks.start_soon(self._fetch_all)

    async def _fetch_all(self) -> None:
        fetched = self._fetched
        try:
            fetched.names = await anyio.to_thread.run_sync(self._names)
            await self.node.metrics.refresh()
            fetched.buses = await buses_view(self.node.buses)
            now = self.now()
            if self._find is not None and now - self._found_at >= FOUND:
                self._found_at = now
                found = await anyio.to_thread.run_sync(self._find)
                fetched.findings = [
                    {key: display_text(value) for key, value in one.items()}
                    for one in found[:MOST_FINDINGS]
                ]
        except Exception:  # The shown data stays as it was, and the node continues.
            logger.exception("cannot fetch the view", extra={"event": "console.fetch-failed"})
        finally:
            self._fetching = False

    def _names(self) -> dict[NodeId, str]:
        """Return the names of nodes, without the addresses of known peers. The successor of an
        ended ID has the name of that ID, unless it has one itself.
        """
        if self.known_peers is None:
            return {}
        try:
            names = {
                peer.node_id: name
                for peer in self.known_peers
                for name in reversed(peer.names)
                if "://" not in name
            }
        except KnownPeersError:
            return {}
        for origin, successor in inheritances(self.node.statements.table):
            if origin in names:
                names.setdefault(successor, names[origin])
        return names
