"""Vectors for federation: paths, what a failure avoids, Dial and Login (sections 19 and 20).

IDs are one byte repeated 32 times. Together with the vectors of envelopes and cards they are
federation.json.
"""

from dataclasses import dataclass, field
from typing import Any

from tests.reference import cbor
from tests.reference.dialling import (
    DialRefused,
    Situation,
    answer_login,
    dial_payload,
    pass_answer,
    take_dial,
)
from tests.reference.vectors_cards import TABLE, card_vectors, envelope_vectors
from tests.reference.vectors_flooding import exchange_vectors, stream_vectors
from tests.reference.vectors_sharing import sharing_vectors
from tests.reference.vectors_tunnels import tunnel_vectors
from tests.reference.ways import Avoided, Links, avoid_after, avoided_by_all, choose
from tests.reference.wire import CELLS

Vector = dict[str, Any]
TRACE = bytes(range(16))


def federation_vectors() -> dict[str, Any]:
    """federation.json."""
    return {
        "about": "Federation. What fails in a card is why it is not taken: `signature` resets the "
        "stream besides. In `path` it is that there is none, in `failure` that there is no further "
        "try, in `dial` and `login` the code of the Answer.",
        "section": "19, 20, 22",
        "table": TABLE,
        "nodes": {name: _shown(node) for name, node in NODES.items()},
        "vectors": [
            *envelope_vectors(),
            *card_vectors(),
            *exchange_vectors(),
            *stream_vectors(),
            *sharing_vectors(),
            *_path_vectors(),
            *_failure_vectors(),
            *_dial_vectors(),
            *_answer_vectors(),
            *tunnel_vectors(),
            *_login_vectors(),
        ],
    }


def _id(name: str) -> bytes:
    """`a` is 01.., `b` 02.., and so on."""
    return bytes([ord(name) - 96]) * 32


def _ids(names: str) -> list[bytes]:
    return [_id(name) for name in names]


def _hex(ids: list[bytes]) -> list[str]:
    return [one.hex() for one in ids]


def _graph(*edges: str) -> Links:
    """Build links from a notation.

    `ab` is an edge on which each side carries traffic of the other; on `a-b` neither side does; on
    `a>b`, b carries traffic from a; with `a|b` only a announces the link.
    """
    links: Links = {}
    for edge in edges:
        one, how, other = edge[0], edge[1:-1], edge[-1]
        links.setdefault(_id(one), {})[_id(other)] = how == ""
        links.setdefault(_id(other), {})
        if how != "|":
            links[_id(other)][_id(one)] = how in ("", ">")
    return links


@dataclass
class _Search:
    graph: Links
    ends: str
    edges: list[str] = field(default_factory=list)
    servers: str = ""


_LINE = ("ab", "bc", "cd", "de", "ef", "fg", "gh", "hi")
_RING = ("ab", "bc", "cd", "de", "ea")
_PATHS = {
    "one hop": _Search(_graph("ab"), "ab"),
    "one hop, and nobody carries": _Search(_graph("a-b"), "ab"),
    "two hops": _Search(_graph("ab", "bc"), "ac"),
    "who carries is asked for the predecessor": _Search(_graph("a>b", "b-c"), "ac"),
    "the last need not carry": _Search(_graph("a>b", "b-c"), "ac"),
    "the least of two": _Search(_graph("ab", "bd", "ac", "cd"), "ad"),
    "the least first step before the least second": _Search(
        _graph("ac", "cf", "ab", "bg", "fz", "gz"), "az"
    ),
    "fewer hops before lesser ids": _Search(_graph("ab", "bc", "cd", "ae", "ed"), "ad"),
    "the short way is not carried": _Search(_graph("a-b", "bd", "ac", "ce", "ed"), "ad"),
    "a server that carries by another way": _Search(_graph("a-b", "bd", "ac", "c>b", "cz"), "ad"),
    "the long way of a ring": _Search(_graph(*_RING), "ad", edges=["ae"]),
    "the ring, and one is avoided": _Search(_graph(*_RING), "ac", servers="b"),
    "an avoided server that is the target": _Search(_graph(*_RING), "ac", servers="c"),
    "an avoided server that is the first": _Search(_graph(*_RING), "ac", servers="a"),
    "an edge that is avoided the other way": _Search(_graph("ab", "bc"), "ac", edges=["cb"]),
    "eight ids": _Search(_graph(*_LINE), "ah"),
    "backwards": _Search(_graph(*_LINE), "ha"),
    "nine ids": _Search(_graph(*_LINE), "ai"),
    "no edge": _Search(_graph("ab", "cd"), "ac"),
    "one side denies": _Search(_graph("ab", "b|c"), "ac"),
    "the other side denies": _Search(_graph("ab", "c|b"), "ac"),
    "one side denies the first": _Search(_graph("a|b", "bc"), "ac"),
    "nobody carries": _Search(_graph("a-b", "bc"), "ac"),
    "it carries the other way alone": _Search(_graph("b>a", "bc"), "ac"),
    "the second does not carry": _Search(_graph("ab", "b-c", "cd"), "ad"),
    "a target without a card": _Search(_graph("ab"), "ac"),
    "no cards": _Search({}, "ab"),
    "an avoided edge": _Search(_graph("ab", "bc"), "ac", edges=["bc"]),
    "an avoided server": _Search(_graph("ab", "bc"), "ac", servers="b"),
    "both ways of a ring are avoided": _Search(_graph(*_RING), "ac", servers="bd"),
    "the first edge is avoided": _Search(_graph("ab"), "ab", edges=["ab"]),
}


def _path_vectors() -> list[Vector]:
    vectors: list[Vector] = []
    for name, search in _PATHS.items():
        start, target = _ids(search.ends)
        edges = {(_id(edge[0]), _id(edge[1])) for edge in search.edges}
        path = choose(search.graph, start, target, Avoided(edges, set(_ids(search.servers))))
        vector: Vector = {
            "name": f"path: {name}",
            "kind": "path",
            "links": {
                server.hex(): [[link.hex(), carries] for link, carries in to.items()]
                for server, to in sorted(search.graph.items())
            },
            "from": start.hex(),
            "to": target.hex(),
            "avoided_edges": [_hex(_ids(edge)) for edge in search.edges],
            "avoided_servers": _hex(_ids(search.servers)),
        }
        if path is None:
            vectors.append({**vector, "fails": "unreachable", "why": "no usable path"})
        else:
            vectors.append({**vector, "expected": _hex(path)})
    return vectors


def _failure_vectors() -> list[Vector]:
    vectors: list[Vector] = []
    cases: list[tuple[str, str, int | None, int | None]] = [
        *(("abcd", "", 28, hop) for hop in (0, 1, 2, 3, 4, None)),
        *(("abcd", "", 20, hop) for hop in (0, 1, 2, 3, 4, None)),
        *(("abcd", "", code, hop) for code in (17, 19) for hop in (0, 1, 2, 3, None)),
        *(("abcd", "", code, 2) for code in (1, 16, 18, 23, 99)),
        *((path, "", None, None) for path in ("abcd", "abc", "ab")),
        *((path, "", 0, None) for path in ("abcd", "abc", "ab")),
        *(("abc", "n", 28, hop) for hop in (1, 2)),
        *(("abc", "n", 20, hop) for hop in (2, 3)),
        *(("abc", "n", 17, hop) for hop in (1, 2, 3)),
        *((path, "n", code, None) for path in ("abc", "a") for code in (None, 0)),
    ]
    for servers, account, code, hop in cases:
        said = "no Answer" if code is None else f"code {code}"
        of = "" if hop is None else f" of hop {hop}"
        to = ", to an account" if account else ""
        vector: Vector = {
            "name": f"failure: {said}{of}, by {len(servers)} servers{to}",
            "kind": "failure",
            "path": _hex(_ids(servers + account)),
            "to_account": account != "",
            "code": code,
            "hop": hop,
        }
        avoided = avoid_after(_ids(servers), account != "", code, hop)
        if avoided is None:
            vectors.append({**vector, "fails": "final", "why": "nothing can be avoided"})
        else:
            expected = {
                "edges": [_hex(list(edge)) for edge in sorted(avoided.edges)],
                "servers": _hex(sorted(avoided.servers)),
                "for": "all" if avoided_by_all(account != "", code) else "route",
            }
            vectors.append({**vector, "expected": expected})
    return vectors


def _to(names: str, **changes: Any) -> bytes:
    cells = {"to": _ids(names), "trace": TRACE, "deadline_ms": 30_000, **changes}
    return cbor.encode_payload({CELLS[n]: v for n, v in cells.items() if v is not None})


def _by(names: str, deadline_ms: int = 30_000) -> bytes:
    return dial_payload(_ids(names), TRACE, deadline_ms)


# The node is c. It has links to b, d and g; it carries for b and g. s is a member without a link.
# n and m may have accounts, and n is logged in. By the cards d is linked to e, and carries.
_HERE = Situation(
    own=_id("c"),
    members=frozenset(_ids("bdges")),
    linked=frozenset(_ids("bdg")),
    carry=frozenset(_ids("bg")),
    accounts=frozenset(_ids("nm")),
    logged_in=frozenset(_ids("n")),
    links=_graph("cb", "cd", "cg", "de", "ef"),
)
# The same node, at which anybody may have an account; and one that has a home b and no server.
_OPEN = Situation(**{**vars(_HERE), "accounts": None})
_NODE = Situation(own=_id("c"), homes=frozenset(_ids("b")))
_LOST = Situation(**{**vars(_HERE), "linked": frozenset(_ids("bg"))})
# The same node, which has stored the ends of m, of the server f, and of x.
_ENDED = Situation(**{**vars(_HERE), "ended": frozenset(_ids("mfx"))})
_OPEN_ENDED = Situation(**{**vars(_ENDED), "accounts": None})
NODES = {
    "a server": _HERE,
    "one at which anybody may have an account": _OPEN,
    "no server": _NODE,
    "one that lost a link": _LOST,
    "one that knows of ended ids": _ENDED,
    "one that knows of ended ids, at which anybody may have an account": _OPEN_ENDED,
}
_DIALS: dict[str, tuple[Situation, str, bytes, int]] = {
    "for this node": (_HERE, "b", _by("abc"), 5),
    "for this node, from one for which it does not carry": (_HERE, "d", _by("dc"), 5),
    "for this node, of eight ids": (_HERE, "b", _by("zyxwvabc"), 5),
    "for this node, which is no server": (_NODE, "b", _by("abc"), 5),
    "to a linked server": (_HERE, "b", _by("abcd"), 5),
    "to a linked server, and on": (_HERE, "b", _by("bcdef"), 250),
    "to an account": (_HERE, "b", _by("abcn"), 5),
    "to an account, from one for which it does not carry": (_HERE, "d", _by("edcn"), 5),
    "with 101 ms left": (_HERE, "b", _by("bcd", 106), 5),
    "from an account, to a server": (_HERE, "n", _to("e"), 7),
    "from an account, to a linked server": (_HERE, "n", _to("d"), 0),
    "from an account that is not logged in": (_HERE, "m", _to("d"), 0),
    "from an account, to an account here": (_HERE, "m", _to("cn"), 0),
    "from an account, to an account elsewhere": (_HERE, "n", _to("ek"), 0),
    "from anybody, where anybody may": (_OPEN, "x", _to("e"), 0),
    "from an account, to its home": (_HERE, "n", _to("c"), 0),
    "from an account, to a linked server as if it had an account": (_HERE, "n", _to("cg"), 0),
    "with a long deadline": (_HERE, "b", _by("bcd", 2**64 - 1), 1),
    "with cells of other types": (_HERE, "n", _to("e", code="0", exports=1), 0),
    "without trace": (_HERE, "n", _to("e", trace=None), 0),
    "with a trace of 15 bytes": (_HERE, "n", _to("e", trace=TRACE[1:]), 0),
    "without deadline": (_HERE, "n", _to("e", deadline_ms=None), 0),
    "with a deadline below 0": (_HERE, "n", _to("e", deadline_ms=-1), 0),
    "to nobody": (_HERE, "n", _to(""), 0),
    "to three": (_HERE, "n", _to("efg"), 0),
    "to an id of 31 bytes": (_HERE, "n", _to("", to=[_id("e")[1:]]), 0),
    "with neither": (_HERE, "n", _to("", to=None), 0),
    "with both": (_HERE, "n", _to("e", path=_ids("ce")), 0),
    "that is not LBM": (_HERE, "b", b"\xff", 0),
    "to the same id twice": (_HERE, "n", _to("ee"), 0),
    "by one id": (_HERE, "b", _by("c"), 0),
    "by nine ids": (_HERE, "b", _by("zyxwvuabc"), 0),
    "by a path without this node": (_HERE, "b", _by("abd"), 0),
    "by a path that this node has not written": (_HERE, "b", _by("cbd"), 0),
    "by a path with an id twice": (_HERE, "b", _by("abcdb"), 0),
    "by a path with this node twice": (_HERE, "b", _by("abcdc"), 0),
    "by a path that goes back": (_HERE, "b", _by("abcb"), 0),
    "by a path in which another is before": (_HERE, "b", _by("adc"), 0),
    "from an account, by a path": (_HERE, "n", _by("ncd"), 0),
    "from an account, by a path to here": (_HERE, "n", _by("nc"), 0),
    "from a stranger, by a path": (_HERE, "x", _by("xcd"), 0),
    "from a member without a link, by a path": (_HERE, "s", _by("scd"), 0),
    "from one for which it does not carry": (_HERE, "d", _by("edcb"), 0),
    "from one for which it does not carry, to one that is not there": (_HERE, "d", _by("dcs"), 0),
    "to a member without a link": (_HERE, "b", _by("abcs"), 0),
    "to a link that was lost": (_LOST, "b", _by("abcd"), 0),
    "to a link that was lost, and on": (_LOST, "b", _by("abcde"), 0),
    "through one that nobody knows": (_HERE, "b", _by("abcxy"), 0),
    "through an account": (_HERE, "b", _by("abcnd"), 0),
    "to one that nobody knows": (_HERE, "b", _by("abcx"), 0),
    "to an account that is away": (_HERE, "b", _by("abcm"), 0),
    "to an account that is away, from one for which it does not carry": (
        *(_HERE, "d", _by("edcm")),
        0,
    ),
    "to anybody, where anybody may": (_OPEN, "b", _by("abcx"), 0),
    "through a node that is no server": (_NODE, "b", _by("abcd"), 0),
    "to a node that is no server, from no home": (_NODE, "d", _by("adc"), 0),
    "to a server, at a node that is none": (_NODE, "n", _to("e"), 0),
    "with nothing left": (_HERE, "b", _by("bcd", 100), 0),
    "with deadline 0": (_HERE, "b", _by("bcd", 0), 0),
    "from a linked server, to a server": (_HERE, "b", _to("d"), 0),
    "from a linked server, where anybody may": (_OPEN, "b", _to("d"), 0),
    "from a stranger": (_HERE, "x", _to("d"), 0),
    "from an account, to a server that nobody knows": (_HERE, "n", _to("x"), 0),
    "from an account, to a member without a way": (_HERE, "n", _to("s"), 0),
    "from an account, where the link is lost": (_LOST, "n", _to("e"), 0),
    "from an account, to one here that is away": (_HERE, "n", _to("cm"), 0),
    "from an account, to one here that nobody knows": (_HERE, "n", _to("cx"), 0),
    "from an account, to a member as if it had an account": (_HERE, "n", _to("cs"), 0),
    "from a member without a link, where anybody may": (_OPEN, "s", _to("d"), 0),
    "from a stranger, which is malformed": (_HERE, "x", b"\xff", 0),
    "to a server, where others have ended": (_ENDED, "b", _by("abcde"), 5),
    "from an account, where others have ended": (_ENDED, "n", _to("e"), 5),
    "to an account that has ended": (_ENDED, "b", _by("abcm"), 0),
    "to an ended id, where anybody may": (_OPEN_ENDED, "b", _by("abcx"), 0),
    "to a server that has ended": (_ENDED, "b", _by("abcdef"), 0),
    "to an ended id, from one for which it does not carry": (_ENDED, "d", _by("edcbf"), 0),
    "to an ended id, with nothing left": (_ENDED, "b", _by("bcdf", 100), 0),
    "to an ended id, by a path that goes back": (_ENDED, "b", _by("abcbf"), 0),
    "to an ended id, from a stranger": (_ENDED, "y", _by("ycf"), 0),
    "from an account, to a server that has ended": (_ENDED, "n", _to("f"), 0),
    "from an account, to an ended id at a home": (_ENDED, "n", _to("ex"), 0),
    "from an account, to one here that has ended": (_ENDED, "n", _to("cm"), 0),
    "from an account that has ended": (_ENDED, "m", _to("d"), 0),
    "from an ended id, where anybody may": (_OPEN_ENDED, "x", _to("d"), 0),
}


def _dial_vectors() -> list[Vector]:
    vectors: list[Vector] = []
    for name, (node, neighbour, payload, passed) in _DIALS.items():
        vector = {
            "name": f"dial: {name}",
            "kind": "dial",
            "node": _name(node),
            "neighbour": _id(neighbour).hex(),
            "passed_ms": passed,
            "input": payload.hex(),
        }
        try:
            goes_on = take_dial(node, _id(neighbour), payload, passed)
        except DialRefused as refused:
            failure = {"fails": str(refused.code), "hop": refused.hop, "why": _WHY[refused.code]}
            vectors.append({**vector, **failure})
            continue
        expected: Vector = {"here": True}
        if goes_on is not None:
            expected = {"path": _hex(goes_on.path)}
            if CELLS["path"] in cbor.decode_payload(payload):
                expected = {"to": goes_on.to.hex(), "payload": goes_on.payload.hex()}
        vectors.append({**vector, "expected": expected})
    return vectors


# By name: the servers of a path, the index of the one that passes the Answer on, and its cells.
_ANSWERS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "of the next server": ("abcd", 1, {"code": 28, "hop": 2}),
    "of a server behind it": ("abcd", 0, {"code": 20, "hop": 3}),
    "with a text": ("abcd", 1, {"code": 1, "hop": 3, "text": "nobody of this id"}),
    "with a long text": ("abcd", 1, {"code": 1, "hop": 3, "text": "x" * 257}),
    "without a hop": ("abcd", 1, {"code": 19}),
    "of the server itself": ("abcd", 1, {"code": 19, "hop": 1}),
    "of a server before it": ("abcd", 2, {"code": 17, "hop": 0}),
    "of a server behind the last": ("abcd", 1, {"code": 17, "hop": 7}),
    "of the last, that the next link is not there": ("abcd", 1, {"code": 28, "hop": 3}),
    "of the last of two, that the next link is not there": ("abc", 1, {"code": 28, "hop": 2}),
    "with an unknown code": ("abcd", 1, {"code": 99, "hop": 2}),
}
_UNREADABLE: dict[str, bytes] = {
    "that is not LBM": b"\xff",
    "without a code": cbor.encode_payload({CELLS["hop"]: 2}),
    "with a code that is text": cbor.encode_payload({CELLS["code"]: "28"}),
    "with a code of 2^32": cbor.encode_payload({CELLS["code"]: 2**32}),
    "with hop 8": cbor.encode_payload({CELLS["code"]: 28, CELLS["hop"]: 8}),
    "with a hop that is text": cbor.encode_payload({CELLS["code"]: 28, CELLS["hop"]: "2"}),
    "with a text that is bytes": cbor.encode_payload({CELLS["code"]: 28, CELLS["text"]: b"x"}),
    "without a payload": b"",
}


def _answer_vectors() -> list[Vector]:
    """Answers with another code than 0, and what the server before sends for them."""
    vectors: list[Vector] = []
    for name, (servers, at, cells) in _ANSWERS.items():
        payload = cbor.encode_payload({CELLS[cell]: value for cell, value in cells.items()})
        vector: Vector = {"name": f"answer: {name}", "kind": "answer"}
        expected = pass_answer(_ids(servers), at, payload).hex()
        place = {"path": _hex(_ids(servers)), "at": at}
        vectors.append({**vector, **place, "input": payload.hex(), "expected": expected})
    for name, payload in _UNREADABLE.items():
        path = _hex(_ids("abcd"))
        vector = {"name": f"answer: {name}", "kind": "answer", "path": path, "at": 1}
        try:
            pass_answer(_ids("abcd"), 1, payload)
        except (cbor.LbmError, KeyError):
            outcome = {"fails": "28", "hop": 1, "why": "an Answer that is malformed is none"}
            vectors.append({**vector, "input": payload.hex(), **outcome})
    return vectors


_WHY = {
    1: "nobody of this id here",
    17: "the deadline has passed",
    20: "not authorised",
    23: "malformed",
    28: "the next link is not there",
}


def _name(node: Situation) -> str:
    return next(name for name, one in NODES.items() if one is node)


def _shown(node: Situation) -> Vector:
    def several(ids: frozenset[bytes]) -> list[str]:
        return sorted(_hex(list(ids)))

    return {
        "own": node.own.hex(),
        "members": several(node.members),
        "linked": several(node.linked),
        "carry": several(node.carry),
        "accounts": None if node.accounts is None else several(node.accounts),
        "logged_in": several(node.logged_in),
        "homes": several(node.homes),
        "ended": several(node.ended),
        "links": {
            server.hex(): [[link.hex(), carries] for link, carries in to.items()]
            for server, to in sorted(node.links.items())
        },
    }


def _login(**cells: Any) -> bytes:
    return cbor.encode_payload({CELLS[name]: value for name, value in cells.items()})


_LOGINS: dict[str, tuple[Situation, str, bytes, dict[str, bool]]] = {
    "of one who may": (_HERE, "n", _login(), {}),
    "without a payload": (_HERE, "m", b"", {}),
    "with exports": (_HERE, "m", _login(exports=["shop.*"]), {}),
    "with a prekey": (_HERE, "m", _login(envelopes=[b"prekey"]), {}),
    "of anybody, where anybody may": (_OPEN, "x", _login(), {}),
    "of one who may not": (_HERE, "x", _login(), {}),
    "of a linked server, where anybody may": (_OPEN, "b", _login(), {}),
    "of a member without a link, where anybody may": (_OPEN, "s", _login(), {}),
    "of one that has ended": (_ENDED, "m", _login(), {}),
    "of one that has ended, where anybody may": (_OPEN_ENDED, "x", _login(), {}),
    "at a node without accounts": (_NODE, "n", _login(), {}),
    "through a tunnel": (_HERE, "n", _login(), {"tunnelled": True}),
    "on an unencrypted connection": (_OPEN, "x", _login(), {"encrypted": False}),
    "with exports that are text": (_HERE, "n", _login(exports="shop.*"), {}),
    "with 65 exports": (_HERE, "n", _login(exports=["e"] * 65), {}),
    "with a long export": (_HERE, "n", _login(exports=["e" * 257]), {}),
    "with exports that are numbers": (_HERE, "n", _login(exports=[1]), {}),
    "with envelopes that are text": (_HERE, "n", _login(envelopes=["prekey"]), {}),
    "with cells of other types": (_HERE, "n", _login(code="0", path=1, mail_id="x"), {}),
    "that is not LBM": (_HERE, "n", b"\xff", {}),
}


def _login_vectors() -> list[Vector]:
    vectors: list[Vector] = []
    for name, (node, asker, payload, how) in _LOGINS.items():
        encrypted, tunnelled = how.get("encrypted", True), how.get("tunnelled", False)
        vector = {
            "name": f"login: {name}",
            "kind": "login",
            "node": _name(node),
            "neighbour": _id(asker).hex(),
            "encrypted": encrypted,
            "tunnelled": tunnelled,
            "input": payload.hex(),
        }
        code = answer_login(node, _id(asker), payload, encrypted=encrypted, tunnelled=tunnelled)
        if code:
            vectors.append({**vector, "fails": str(code), "why": _WHY[code]})
        else:
            vectors.append({**vector, "expected": 0})
    return vectors
