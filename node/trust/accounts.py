"""`HostedAccounts`: what makes a node a home, and keeps its accounts as a setting has them
(docs/protocol.md section 20).

Accounts that are known stand in a file like that of known peers, which other processes change.
"""

import logging
from collections.abc import Callable, Collection, Container
from typing import Final

from anyio import CapacityLimiter

from parley._crypto.errors import IdentityError
from parley._crypto.identity import NodeId
from parley._node.errors import ConfigError, KnownPeersError
from parley._node.federation.accounts import Accounts
from parley._node.handlers.registry import Handlers
from parley._node.protocol.codes import CloseCode
from parley._node.remote.live_connection import LiveConnection
from parley._node.transport.backend import Backend
from parley._node.transport.conditions import Condition, pause_until
from parley._node.transport.loop import Runner
from parley._node.trust.known_peers import (
    LOOK,
    UNREADABLE,
    KnownPeers,
    WatchedFile,
    default_accounts,
    in_thread,
)

logger = logging.getLogger("parley.accounts")

# What the setting says beside node ids.
OFF: Final = "off"
KNOWN: Final = "known"
ANY: Final = "any"


class HostedAccounts:
    """The accounts of a node: Login is answered by them from `begin` to `end`.

    `setting` is `off` (nobody has one), `known` (those in `file`, by default `default_accounts()`),
    `any`, or node ids. Whoever is in `servers` has none; it is asked each time. `on_change` is
    called whenever other nodes may have one than before.

    Raises:
        ConfigError: the setting is none of these, or there is no home directory.
    """

    def __init__(
        self,
        handlers: Handlers,
        setting: str | Collection[str],
        *,
        servers: Container[NodeId] = frozenset(),
        file: KnownPeers | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._handlers = handlers
        self._on_change = on_change
        self._file: WatchedFile | None = None
        ids: Collection[NodeId] | None = ()
        if setting == KNOWN:
            self._file = WatchedFile(KnownPeers(default_accounts()) if file is None else file)
        elif setting == ANY:
            ids = None
        elif isinstance(setting, str):
            if setting != OFF:
                raise ConfigError(f"accounts are off, known, any, or node ids, not {setting!r}")
        else:
            ids = [_node_id(text) for text in setting]
        self.accounts: Accounts[LiveConnection] = Accounts(ids, servers)
        self._runner: Runner | None = None
        self._changes: Condition  # of which nothing ever tells: it only waits for the next look

    def __repr__(self) -> str:
        return f"<HostedAccounts: {self.accounts!r}>"

    async def begin(self, loop: Backend) -> None:
        """Read the file, if there is one, and answer logins from now on.

        Raises:
            KnownPeersError: the file cannot be read, or is malformed.
        """
        file = self._file
        if file is not None:
            # Of its own: handlers that keep all threads busy must not keep anybody out.
            threads = CapacityLimiter(1)
            self._changes = Condition(loop.waiter)
            file.reviewed = file.seen = await in_thread(threads, file.stamp)
            found = await in_thread(threads, lambda: _read(file.known_peers))
            if not isinstance(found, frozenset):
                raise found or _slow(file.known_peers)
            self.accounts.change(found)
            self._runner = loop.spawn(self._watch, file, threads, loop)
        self._handlers.accounts = self.accounts

    def end(self) -> None:
        """Nobody has an account any more; sessions stay."""
        self._handlers.accounts = None
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.cancel()

    async def _watch(self, file: WatchedFile, threads: CapacityLimiter, loop: Backend) -> None:
        while True:
            await pause_until(loop, LOOK, self._changes, lambda: False)
            if not file.is_due(await in_thread(threads, file.stamp)):
                continue
            found = await in_thread(threads, lambda: _read(file.known_peers))
            if file.is_still and await in_thread(threads, file.stamp) != file.seen:
                continue  # somebody began to write it as it was read: it may have been empty
            trouble = None if isinstance(found, frozenset) else found or _slow(file.known_peers)
            if file.is_waited_for(trouble, loop.now()):
                continue
            file.reviewed = file.seen
            self._change(found if isinstance(found, frozenset) else frozenset())

    def _change(self, ids: frozenset[NodeId]) -> None:
        """Who lost its account is told by the end of its session, and meets 20 when it is back."""
        for live in self.accounts.change(ids):
            logger.info(
                "%s has no account any more",
                live.remote,
                extra={"event": "account.lost", "peer": live.node_id},
            )
            live.drop(CloseCode.GOING_AWAY)
        self._on_change()


def _node_id(text: str) -> NodeId:
    try:
        return NodeId.parse(text)
    except IdentityError as error:
        raise ConfigError(f"accounts has {text!r}, which is not a node id") from error


def _read(file: KnownPeers) -> frozenset[NodeId] | KnownPeersError:
    try:
        return frozenset(one.node_id for one in file)
    except KnownPeersError as error:
        return error


def _slow(file: KnownPeers) -> KnownPeersError:
    return KnownPeersError(f"{file.path} was not read in {UNREADABLE:g} s")
