"""What the console shows of a node's peers: plain data, read when it is asked for."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final
from weakref import WeakKeyDictionary

from parley._crypto.identity import NodeId
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.peer.readings import flows_of
from parley._node.web.console.text import ids, shown

# Rows of one view: what is beyond is counted, and found by a search.
MOST_PEERS: Final = 500
MOST_STREAMS: Final = 200
MOST_FACTS: Final = 32

# What the users of this machine call nodes.
Names = Mapping[NodeId, str]


class PeerNumbers:
    """Numbers by which a page names connections: a node may have several, and some have no id."""

    def __init__(self) -> None:
        self._numbers: WeakKeyDictionary[Peer, int] = WeakKeyDictionary()
        self._last = 0

    def of(self, peer: Peer) -> int:
        """The number of a peer, the same for as long as there is one."""
        number = self._numbers.get(peer)
        if number is None:
            self._last = number = self._last + 1
            self._numbers[peer] = number
        return number

    def find(self, peers: Iterable[Peer], number: int) -> Peer | None:
        """The peer of a number among these."""
        return next((peer for peer in peers if self._numbers.get(peer) == number), None)


def peers_view(node: Node, numbers: PeerNumbers, names: Names, find: str = "") -> dict[str, Any]:
    """The peers that are there now, the longest known first; those alone whose id, name, place or
    role has `find` in it. `total` counts those too that are not listed."""
    wanted = find.casefold()
    peers = sorted(node.peers, key=numbers.of)
    fitting = [peer for peer in peers if not wanted or wanted in _searched(peer, names)]
    rows = [_row(numbers.of(peer), peer, names) for peer in islice(fitting, MOST_PEERS)]
    return {
        "total": len(peers),
        "fitting": len(fitting),
        "streams": sum(len(peer.streams) for peer in peers),
        "running": sum(peer.running_calls for peer in peers),
        "parted": sum(peer.is_parted for peer in peers),
        "rows": rows,
    }


def peer_view(node: Node, number: int, peer: Peer, names: Names) -> dict[str, Any]:
    """All of one peer."""
    agreed = peer.suite.names() if peer.suite else {}
    streams = [
        {"id": stream.id, "label": shown(stream.label)}
        for stream in islice(peer.streams, MOST_STREAMS)
    ]
    read = [topic.name for topic in node.topics.values() if _reads(topic.subscribers, peer)]
    return {
        **_row(number, peer, names),
        "suite": agreed,
        "info": {shown(key): shown(value) for key, value in islice(peer.info.items(), MOST_FACTS)},
        "stream_list": streams,
        "topics": [shown(name) for name in read[:MOST_STREAMS]],
        "waiting": peer.core.outbox.size,
        "waiting_events": peer.core.outbox.count,
        "ignored": peer.ignored,
        "dropped": peer.dropped,
        "parted_by": shown(peer.live.parted_by),
    }


def _row(number: int, peer: Peer, names: Names) -> dict[str, Any]:
    flows = flows_of(peer)
    return {
        "key": number,
        "id": str(peer.node_id) if peer.node_id else None,
        "name": _name(peer, names),
        "place": shown(peer.name),
        "role": shown(peer.role),
        "encrypted": peer.encrypted,
        "dialled": peer.core.initiator,
        "parted": peer.is_parted,
        "resumes": peer.resumes,
        "streams": len(peer.streams),
        "running": peer.running_calls,
        "received": flows.came,
        "sent": flows.went,
        "way": ids(peer.path),
    }


def _name(peer: Peer, names: Names) -> str:
    """What its user calls it; empty if nothing."""
    return shown(names.get(peer.node_id, "")) if peer.node_id else ""


def _searched(peer: Peer, names: Names) -> str:
    words = (str(peer.node_id or ""), _name(peer, names), peer.name, peer.role)
    return " ".join(words).casefold()


def _reads(subscribers: Iterable[Any], peer: Peer) -> bool:
    return any(one.peer is peer for one in subscribers)
