"""The data of the console as plain data: peers, topics, buses, federation, metrics, journal.

Text from other nodes is limited in length, on one line, and with control characters escaped. The
page inserts it only as text (`textContent`), so that it cannot become markup.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from typing import Any, Final
from weakref import WeakKeyDictionary

import anyio

from parley._crypto.identity import NodeId
from parley._node.bus.address import without_password
from parley._node.bus.bus import Bus
from parley._node.bus.dead_letters import DeadLetter
from parley._node.bus.errors import BusUnavailableError
from parley._node.bus.identifiers import DEAD, dead_name
from parley._node.errors import ParleyError
from parley._node.journal.journal import Journal
from parley._node.logs import one_line
from parley._node.metrics.catalogue import Histogram, MetricFamily
from parley._node.node import Node
from parley._node.peer.metrics import traffic_of
from parley._node.peer.peer import Peer
from parley._node.server.federation import Federation, LinkState

# The local names of nodes.
Names = Mapping[NodeId, str]
# The maximum length of a displayed name, label or reason, in characters.
LONGEST: Final = 200


def display_text(text: object, longest: int = LONGEST) -> str:
    """Return the text as one line of limited length, with control characters escaped."""
    whole = str(text)
    cut = one_line(whole[:longest])
    return cut if len(whole) <= longest and len(cut) <= longest else cut[: longest - 1] + "…"


def ids(path: Iterable[NodeId]) -> list[str]:
    return [str(one) for one in path]


# The most displayed streams of a bus or a peer, and buses.
MOST_STREAMS: Final = 200
MOST_BUSES: Final = 16
# The time for a store to answer, in seconds.
PATIENCE: Final = 3.0
# The letters of one page, and the displayed characters of an event's data.
LETTERS: Final = 50
LONGEST_BODY: Final = 4_000


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Limit the time of requests to a bus; raise BusUnavailableError after `seconds`."""
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError as error:
        raise BusUnavailableError(f"the bus did not answer within {seconds:g} s") from error


async def buses_view(buses: Mapping[str, Bus]) -> list[dict[str, Any]]:
    views: list[dict[str, Any]] = []

    async def view(number: int, url: str, bus: Bus) -> None:
        views[number] = await _bus(number, url, bus)

    async with anyio.create_task_group() as tasks:
        for number, (url, bus) in enumerate(islice(buses.items(), MOST_BUSES)):
            views.append({})
            tasks.start_soon(view, number, url, bus)
    return views


async def _bus(number: int, url: str, bus: Bus) -> dict[str, Any]:
    seen: dict[str, Any] = {
        "key": number,
        "address": display_text(without_password(url)),
        "counters": asdict(bus.counters),
        "streams": [],
        "total": 0,
        "dead": 0,
        "error": None,
    }
    try:
        with time_limit(PATIENCE):
            store = await bus.opened()
            infos = await store.streams()
            dead = {info.name: info.length for info in infos if info.name.endswith(f".{DEAD}")}
            names = [info for info in infos if info.name not in dead]
            seen["total"] = len(names)
            seen["dead"] = sum(dead.values())
            for info in names[:MOST_STREAMS]:
                groups = await store.groups(info.name)
                seen["streams"].append(
                    {
                        "name": info.name,
                        "length": info.length,
                        "size": info.size,
                        "dead": dead.get(dead_name(info.name), 0),
                        "groups": [group._asdict() for group in groups],
                    }
                )
    except ParleyError as error:
        seen["error"] = display_text(error)
    return seen


async def letters_view(bus: Bus, stream: str, after: str) -> dict[str, Any]:
    """Return a page of a stream's dead letters that follow a letter's ID.

    Raises:
        ParleyError: the bus cannot be opened, has no such stream, fails, or takes too long.
    """
    with time_limit(PATIENCE):
        letters = await bus.dead_letters(stream, count=LETTERS + 1, after=after)
    return {"letters": [_letter(one) for one in letters[:LETTERS]], "more": len(letters) > LETTERS}


def _letter(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "event_id": display_text(letter.event_id),
        "name": display_text(letter.name),
        "group": display_text(letter.group),
        "attempts": letter.attempts,
        "body": display_text(letter.body, LONGEST_BODY),
        "history": [
            {
                **failure._asdict(),
                "consumer": display_text(failure.consumer),
                "error": display_text(failure.error),
            }
            for failure in letter.history
        ],
    }


MOST_SERVERS: Final = 1_024  # As many as a federation has.
MOST_WAYS: Final = 200
MOST_WORDS: Final = 32


def federation_view(
    node: Node, federation: Federation | None, names: Names
) -> dict[str, Any] | None:
    """Return the graph of the federation, the tunnels through this server, and problems.

    Returns None without a federation. The graph follows the servers' cards; only this server's own
    links are verified.
    """
    if federation is None:
        return None
    return {
        "self": str(node.node_id),
        "name": display_text(names.get(node.node_id, "")),
        "links": [_link(link) for link in federation.links],
        "servers": [
            {
                "id": str(server.node_id),
                "name": display_text(names.get(server.node_id, "")),
                "links": {str(one): carries for one, carries in server.links.items()},
                "exports": [display_text(one) for one in server.exports[:MOST_WORDS]],
                "addresses": [display_text(one) for one in server.addresses[:MOST_WORDS]],
                "expires": server.expires.timestamp(),
                "way": ids(server.path),
            }
            for server in islice(federation.servers, MOST_SERVERS)
        ],
        "tunnels": federation.tunnels,
        "ways": [ids(way) for way in islice(federation.carried, MOST_WAYS)],
        "wrong": [
            {"kind": one.kind, "servers": ids(one.servers), "text": display_text(one.text)}
            for one in federation.check()
        ],
    }


def _link(link: LinkState) -> dict[str, Any]:
    up = link.peer is not None
    return {
        "id": str(link.node_id),
        "up": up,
        "kept": link.kept,
        "dialled": link.dialled,
        "error": None if up or link.error is None else display_text(link.error),
    }


def numbers_view(families: Iterable[MetricFamily]) -> list[dict[str, Any]]:
    """Return all metric families with their samples.

    A histogram consists of its bounds, the cumulative counts, and the sum.
    """
    return [
        {
            "name": measure.name,
            "kind": measure.kind,
            "unit": measure.unit,
            "help": measure.help,
            "labels": measure.labels,
            "samples": [
                {"labels": [display_text(one) for one in labels], **_value(value)}
                for labels, value in samples
            ],
        }
        for measure, samples in families
    ]


def _value(value: float | Histogram) -> dict[str, Any]:
    if isinstance(value, Histogram):
        return {"bounds": value.bounds, "counts": value.counts, "sum": value.sum}
    return {"value": value}


MOST_TOPICS: Final = 500


def topics_view(node: Node) -> dict[str, Any]:
    """Return the published topics.

    `dropped` counts events that subscribers lost; `waiting` is the number of bytes queued for them.
    """
    rows = []
    for topic in islice(node.topics.values(), MOST_TOPICS):
        subscribers = topic.subscribers
        rows.append(
            {
                "name": display_text(topic.name),
                "subscribers": len(subscribers),
                "waiting": sum(one.waiting_bytes for one in subscribers),
                "behind": sum(one.behind for one in subscribers),
                "dropped": topic.dropped,
                "kept": topic.kept,
                "kept_bytes": topic.kept_bytes,
            }
        )
    return {"total": len(node.topics), "rows": rows}


def journal_view(journal: Journal | None) -> dict[str, Any] | None:
    """Return the journal, if there is one. `failed` is the reason why writing stopped."""
    if journal is None:
        return None
    settings = journal.settings
    return {
        **journal.metrics._asdict(),
        "directory": display_text(journal.directory),
        "segment": None if journal.path is None else display_text(journal.path.name),
        "running": journal.is_running,
        "failed": None if journal.failed is None else display_text(journal.failed),
        "on_failure": settings.on_failure,
        "fsync": settings.fsync,
        "fsync_interval": settings.fsync_interval,
        "buffer_size": settings.buffer_size,
        "segment_size": settings.segment_size,
        "auditors": [display_text(key.text) for key in settings.auditors],
        "recovered": [
            {"name": display_text(one.name), "records": one.records, "damaged": one.damaged}
            for one in islice(journal.recovered, MOST_TOPICS)
        ],
    }


# The most rows of one view. Further rows are counted, and can be found by a search.
MOST_PEERS: Final = 500
MOST_FACTS: Final = 32


class PeerNumbers:
    """Assigns the numbers by which a page identifies connections.

    A node can have several connections, and some have no node ID.
    """

    def __init__(self) -> None:
        self._numbers: WeakKeyDictionary[Peer, int] = WeakKeyDictionary()
        self._last = 0

    def of(self, peer: Peer) -> int:
        number = self._numbers.get(peer)
        if number is None:
            self._last = number = self._last + 1
            self._numbers[peer] = number
        return number

    def find(self, peers: Iterable[Peer], number: int) -> Peer | None:
        return next((peer for peer in peers if self._numbers.get(peer) == number), None)


def peers_view(node: Node, numbers: PeerNumbers, names: Names, find: str = "") -> dict[str, Any]:
    """Return the current peers, oldest first, filtered by `find` in ID, name, address or role.

    `total` also counts peers that are not listed.
    """
    wanted = find.casefold()
    peers = sorted(node.peers, key=numbers.of)
    fitting = [peer for peer in peers if not wanted or wanted in _searched(peer, names)]
    rows = [_row(numbers.of(peer), peer, names) for peer in islice(fitting, MOST_PEERS)]
    return {
        "total": len(peers),
        "fitting": len(fitting),
        "streams": sum(len(peer.streams) for peer in peers),
        "running": sum(peer.running_calls for peer in peers),
        "suspended": sum(peer.is_suspended for peer in peers),
        "rows": rows,
    }


def peer_view(node: Node, number: int, peer: Peer, names: Names) -> dict[str, Any]:
    agreed = peer.suite.names() if peer.suite else {}
    streams = [
        {"id": stream.id, "label": display_text(stream.label)}
        for stream in islice(peer.streams, MOST_STREAMS)
    ]
    read = [topic.name for topic in node.topics.values() if _reads(topic.subscribers, peer)]
    return {
        **_row(number, peer, names),
        "suite": agreed,
        "info": {
            display_text(key): display_text(value)
            for key, value in islice(peer.info.items(), MOST_FACTS)
        },
        "stream_list": streams,
        "topics": [display_text(name) for name in read[:MOST_STREAMS]],
        "waiting": peer.core.outbox.size,
        "waiting_events": peer.core.outbox.count,
        "ignored": peer.ignored,
        "dropped": peer.dropped,
        "suspended_by": display_text(peer.live.suspended_by),
    }


def _row(number: int, peer: Peer, names: Names) -> dict[str, Any]:
    flows = traffic_of(peer)
    return {
        "key": number,
        "id": str(peer.node_id) if peer.node_id else None,
        "name": _name(peer, names),
        "place": display_text(peer.name),
        "role": display_text(peer.role),
        "encrypted": peer.encrypted,
        "dialled": peer.core.initiator,
        "suspended": peer.is_suspended,
        "resumes": peer.resumes,
        "streams": len(peer.streams),
        "running": peer.running_calls,
        "received": flows.came,
        "sent": flows.went,
        "way": ids(peer.path),
    }


def _name(peer: Peer, names: Names) -> str:
    return display_text(names.get(peer.node_id, "")) if peer.node_id else ""


def _searched(peer: Peer, names: Names) -> str:
    words = (str(peer.node_id or ""), _name(peer, names), peer.name, peer.role)
    return " ".join(words).casefold()


def _reads(subscribers: Iterable[Any], peer: Peer) -> bool:
    return any(one.peer is peer for one in subscribers)
