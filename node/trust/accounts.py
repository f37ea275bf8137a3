"""`HostedAccounts`: makes a node a home server and maintains its accounts according to a setting
(docs/protocol.md section 20).

The file of known accounts has the format of the file of known peers; other processes change it.
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
from parley._node.protocol.handshake import expect
from parley._node.remote.live_connection import LiveConnection
from parley._node.transport.backend import Backend
from parley._node.transport.conditions import Condition, pause_until
from parley._node.transport.loop import Runner
from parley._node.trust.key_statements import KeyStatements
from parley._node.trust.known_peers import KnownPeers, default_accounts
from parley._node.trust.watched_file import LOOK, UNREADABLE, WatchedFile, in_thread

logger = logging.getLogger("parley.accounts")

# Values of the setting other than node ids.
OFF: Final = "off"
KNOWN: Final = "known"
ANY: Final = "any"


class HostedAccounts:
    """The accounts of a node, which can log in between `start` and `stop`.

    `setting` is `off` (no accounts), `known` (the accounts in `file`, by default
    `default_accounts()`), `any`, or node IDs. Nodes in `servers`, which may change, have no
    account. `on_change` is called whenever the permitted accounts change. By `statements`, the
    account of an ended ID is that of its successor (section 22); call `apply_statements` after a
    change.

    Raises:
        ConfigError: the setting is invalid, or the home directory cannot be found.
    """

    def __init__(
        self,
        handlers: Handlers,
        setting: str | Collection[str],
        *,
        servers: Container[NodeId] = frozenset(),
        file: KnownPeers | None = None,
        statements: KeyStatements | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._handlers = handlers
        self._on_change = on_change
        self._statements = KeyStatements() if statements is None else statements
        self._file: WatchedFile[KnownPeers] | None = None
        ids: Collection[NodeId] | None = ()
        if setting == KNOWN:
            self._file = WatchedFile(KnownPeers(default_accounts()) if file is None else file)
        elif setting == ANY:
            ids = None
        elif isinstance(setting, str):
            if setting != OFF:
                raise ConfigError(
                    f"invalid accounts {setting!r}: expected off, known, any or node IDs"
                )
        else:
            ids = [_node_id(text) for text in setting]
        self._listed = None if ids is None else frozenset(ids)
        self.accounts: Accounts[LiveConnection] = Accounts(ids, servers)
        self._runner: Runner | None = None
        self._loop: Backend | None = None
        self._changes = Condition(lambda: expect(self._loop).waiter())  # never notified

    def __repr__(self) -> str:
        return f"<HostedAccounts: {self.accounts!r}>"

    async def start(self, loop: Backend) -> None:
        """Read the file, if there is one, and accept logins.

        Raises:
            KnownPeersError: the file cannot be read, or is malformed.
        """
        file = self._file
        if file is not None:
            # A separate thread, so that busy handlers don't delay it.
            threads = CapacityLimiter(1)
            file.reviewed = file.seen = await in_thread(threads, file.stamp)
            found = await in_thread(threads, lambda: _read(file.file))
            if not isinstance(found, frozenset):
                raise found or _slow(file.file)
            self._listed = found
            self._loop = loop
            self._runner = loop.spawn(self._watch, file, threads, loop)
        self.accounts.change(*self._permitted())
        self._handlers.accounts = self.accounts

    def stop(self) -> None:
        """Refuse further logins; sessions stay open."""
        self._handlers.accounts = None
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.cancel()

    async def _watch(
        self, file: WatchedFile[KnownPeers], threads: CapacityLimiter, loop: Backend
    ) -> None:
        while True:
            await pause_until(loop, LOOK, self._changes, lambda: False)
            if not file.is_due(await in_thread(threads, file.stamp)):
                continue
            found = await in_thread(threads, lambda: _read(file.file))
            if file.is_still and await in_thread(threads, file.stamp) != file.seen:
                continue  # it changed while it was read, and may have been empty
            error = None if isinstance(found, frozenset) else found or _slow(file.file)
            if file.is_tolerated(error, loop.now()):
                continue
            file.reviewed = file.seen
            self._change(found if isinstance(found, frozenset) else frozenset())

    def names(self, node_id: NodeId) -> bool:
        """Return whether the setting or the file contains a node ID."""
        return self._listed is not None and node_id in self._listed

    def _permitted(self) -> tuple[frozenset[NodeId] | None, Collection[NodeId]]:
        """Return the permitted accounts with the successors of ended ones, and the ended IDs."""
        table, listed = self._statements.table, self._listed
        if listed is None or not table.stored:
            return listed, table.origins
        successors = (table.current(one) for one in table.origins if one in listed)
        return listed.union(one for one in successors if one is not None), table.origins

    def _change(self, ids: frozenset[NodeId]) -> None:
        self._listed = ids
        self.apply_statements()

    def apply_statements(self) -> None:
        """Apply the listed accounts and the key statements. Sessions of removed accounts end, and
        they can no longer log in.
        """
        for live in self.accounts.change(*self._permitted()):
            logger.info(
                "%s no longer has an account",
                live.remote,
                extra={"event": "account.lost", "peer": live.node_id},
            )
            live.drop(CloseCode.GOING_AWAY)
        self._on_change()


def _node_id(text: str) -> NodeId:
    try:
        return NodeId.parse(text)
    except IdentityError as error:
        raise ConfigError(f"invalid accounts: {error}") from error


def _read(file: KnownPeers) -> frozenset[NodeId] | KnownPeersError:
    try:
        return frozenset(one.node_id for one in file)
    except KnownPeersError as error:
        return error


def _slow(file: KnownPeers) -> KnownPeersError:
    return KnownPeersError(f"cannot read {file.path}: it took longer than {UNREADABLE:g} s")
