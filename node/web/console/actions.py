"""An operator's actions in the console: on peers, dead letters, and the node itself."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import anyio

from parley._crypto.errors import IdentityError
from parley._crypto.identity import NodeId
from parley._node.bus.bus import Bus
from parley._node.errors import ParleyError
from parley._node.protocol.codes import CloseCode
from parley._node.trust.known_peers import KnownPeers
from parley._node.trust.statement_table import StatementTable
from parley._node.web.console.console import Console
from parley._node.web.console.views import PATIENCE, time_limit

logger = logging.getLogger("parley.console")

MOST_LETTERS: Final = 1_000
# The time for a bus to replay or drop letters, in seconds. Letters processed by then stay
# processed.
SETTLING: Final = 20.0
# The parameters of an action, as the page sends them.
Asked = Mapping[str, Any]


class CannotDoError(ParleyError):
    """Raised when an action is impossible, with the reason for the user."""


class Actions:
    """The actions of one console, by name. Each is logged and returns a sentence for the user."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._actions: dict[str, Callable[[Asked], Awaitable[str]]] = {
            "close": self._close,
            "forget": self._forget,
            "drain": self._drain,
            "replay": self._replay,
            "drop": self._drop,
        }

    async def do(self, name: str, asked: Asked) -> str:
        """Run an action; return a description of the result.

        Raises:
            CannotDoError: the action or its object does not exist.
            ParleyError: the action failed.
        """
        action = self._actions.get(name)
        if action is None:
            raise CannotDoError(
                f"unknown action {ascii(name)[:80]}; use one of {', '.join(self._actions)}"
            )
        done = await action(asked)
        logger.warning("console: %s", done, extra={"event": f"console.{name}"})
        self._console.refresh()
        return done

    async def _close(self, asked: Asked) -> str:
        number = asked.get("peer")
        peer = self._console.find_peer(number) if type(number) is int else None
        if peer is None:
            raise CannotDoError(
                f"cannot close the connection {ascii(number)[:40]}: it is not connected"
            )
        with anyio.move_on_after(PATIENCE):
            await peer.close(CloseCode.NORMAL, "closed by an operator")
        return f"closed the connection with {peer.node_id or peer.name}"

    async def _forget(self, asked: Asked) -> str:
        console = self._console
        try:
            node_id = NodeId.parse(str(asked.get("id")))
        except IdentityError as error:
            raise CannotDoError(str(error)) from error
        if console.known_peers is None:
            raise CannotDoError(f"cannot forget {node_id}: this node has no file of known peers")
        table = console.node.statements.table
        forgot = await anyio.to_thread.run_sync(_forget, console.known_peers, table, node_id)
        if not forgot:
            raise CannotDoError(f"cannot forget {node_id}: it is not a known peer")
        await console.node.review()
        return f"forgot {node_id}"

    async def _drain(self, asked: Asked) -> str:
        console = self._console
        if console.on_drain is None:
            raise CannotDoError(
                f"cannot stop the node {console.node.node_id} from here: its program does not "
                "support this"
            )
        console.draining = True
        console.on_drain()
        return "the node accepts no new work and stops when all work is done"

    async def _replay(self, asked: Asked) -> str:
        bus, stream, letters = self._letters(asked)
        with time_limit(SETTLING):
            replayed = await bus.replay_dead(stream, letters)
        return f"replayed {_letters(len(replayed))} of {stream}"

    async def _drop(self, asked: Asked) -> str:
        bus, stream, letters = self._letters(asked)
        with time_limit(SETTLING):
            dropped = await bus.drop_dead(stream, letters)
        return f"dropped {_letters(dropped)} of {stream}"

    def _letters(self, asked: Asked) -> tuple[Bus, str, list[str] | None]:
        """Return the bus, the stream, and the IDs of its dead letters (None: all)."""
        bus = self._console.find_bus(str(asked.get("bus")))
        if bus is None:
            raise CannotDoError(f"unknown bus {ascii(asked.get('bus'))[:80]}")
        letters = asked.get("letters")
        if letters != "all" and not _are_ids(letters):
            raise CannotDoError(f"invalid letters: expected 'all' or at most {MOST_LETTERS:,} IDs")
        return bus, str(asked.get("stream")), None if letters == "all" else letters


def _forget(known: KnownPeers, table: StatementTable, node_id: NodeId) -> bool:
    """Remove the lines that stand for a peer; return False if there are none."""
    lines = known.lookup_all(table.lineage(node_id))
    forgot = [known.forget(line.node_id) for line in lines]
    return any(forgot)


def _are_ids(letters: object) -> bool:
    return (
        isinstance(letters, list)
        and 0 < len(letters) <= MOST_LETTERS
        and all(isinstance(one, str) for one in letters)
    )


def _letters(count: int) -> str:
    return f"{count:,} dead letter{'' if count == 1 else 's'}"
