"""The console over HTTP: authentication, refused requests, and the effects of actions."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from parley._crypto.identity import Identity
from parley._crypto.statements import create_succession
from parley._node.bus.bus import Bus
from parley._node.errors import ConfigError, InsecureAddressError, PeerClosedError
from parley._node.web.console import actions
from parley._node.web.console import views as buses_view
from parley._node.web.console.app import HEADERS, KEY_HEADER, MOST_READERS
from parley._node.web.console.console import Console
from parley._node.web.console.endpoints import find_consoles, request_link
from parley._node.web.console.server import serve_console
from parley._node.web.console.sessions import ENTRIES, REQUESTS
from tests.node.network import PATIENCE
from tests.node.web.console.busy import HOSTILE, dead_letters, quiet
from tests.node.web.console.conftest import Visitor, visiting

STREAM = "shop.ordered"


async def test_link_works_once_and_everything_else_needs_it(
    tmp_path: Path, anyio_backend: Any
) -> None:
    async with quiet(tmp_path) as found, visiting(found.served, enters=False) as visitor:
        link = found.served.link()
        assert link.startswith(f"{found.served.url}/#token=")
        for path in ("/api/events", "/api/peers", "/api/peers/1", "/api/letters"):
            assert (await visitor.get(path)).status_code == 401
        assert (await visitor.post("/api/do/drain")).status_code == 401
        first = await visitor.enter(link)
        cookie = first.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert (await visitor.get("/api/peers")).json()["total"] == 0
        assert (await visitor.enter(link)).status_code == 401
        assert (await visitor.post("/leave")).status_code == 200
        assert (await visitor.get("/api/peers")).status_code == 401


async def test_nothing_of_a_request_is_parsed_before_it_is_authorised(
    tmp_path: Path, anyio_backend: Any, caplog: pytest.LogCaptureFixture
) -> None:
    long = "9" * 5_000
    async with quiet(tmp_path) as found:
        async with visiting(found.served, enters=False) as visitor:
            for number in (long, "x", "-1", "%00", "\N{SUPERSCRIPT TWO}"):
                assert (await visitor.get(f"/api/peers/{number}")).status_code == 401
            answer = await visitor.http.post("/enter", content=f'{{"token": {long}}}')
            assert answer.status_code == 403
            visitor.headers["content-type"] = "application/json"
            for body in (f'{{"token": {long}}}', "[" * 60_000, "\xff", '{"token": "\\ud800"}'):
                answer = await visitor.http.post("/enter", content=body, headers=visitor.headers)
                assert answer.status_code == 401
        async with visiting(found.served) as visitor:
            for number in (long, "9" * 18, "x", "-1", "%00", "\N{SUPERSCRIPT TWO}"):
                assert (await visitor.get(f"/api/peers/{number}")).status_code == 404
    assert not caplog.records


async def test_cookie_or_key_alone_is_not_enough(tmp_path: Path, anyio_backend: Any) -> None:
    async with quiet(tmp_path) as found, visiting(found.served) as visitor:
        key = visitor.headers.pop(KEY_HEADER)
        assert (await visitor.get("/api/peers")).status_code == 401  # As on another port.
        visitor.headers[KEY_HEADER] = key
        visitor.http.cookies.clear()
        assert (await visitor.get("/api/peers")).status_code == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        (
            {"host": "127.0.0.1"},
            421,
        ),  # A name that was made to resolve to this machine has no port.
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        (
            {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"},
            403,
        ),  # Another port of this machine.
    ],
)
async def test_requests_of_other_sites_get_nothing(
    tmp_path: Path, anyio_backend: Any, headers: dict[str, str], status: int
) -> None:
    async with quiet(tmp_path) as found, visiting(found.served, may_act=True) as visitor:
        visitor.headers |= headers
        for answer in (await visitor.get("/"), await visitor.get("/api/peers")):
            assert answer.status_code == status
        assert (await visitor.post("/api/do/drain")).status_code == status
        assert not found.drained.is_set()
        del visitor.headers["origin"]
        assert (await visitor.post("/api/do/drain")).status_code in (403, status)
        assert not found.drained.is_set()


async def test_every_answer_has_a_strict_policy(tmp_path: Path, anyio_backend: Any) -> None:
    async with quiet(tmp_path) as found, visiting(found.served) as visitor:
        for path in ("/", "/static/main.js", "/api/peers", "/nothing", "/static/../site.py"):
            answer = await visitor.get(path)
            assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        page = (await visitor.get("/")).text
        policy = HEADERS["Content-Security-Policy"]
        assert "unsafe" not in policy
        assert policy.startswith("default-src 'none'")
        assert page.count("<script") == page.count('<script type="module" src=') == 1
        assert "style=" not in page
        assert (await visitor.get("/static/%2e%2e%2fsite.py")).status_code == 404


async def test_read_only_session_cannot_act(tmp_path: Path, anyio_backend: Any) -> None:
    async with quiet(tmp_path, 1) as found, visiting(found.served) as visitor:
        (row,) = (await visitor.get("/api/peers")).json()["rows"]
        for action in ("close", "forget", "drain", "replay", "drop"):
            status, text = await visitor.do(action, peer=row["key"], id=row["id"])
            assert (status, "read-only" in text) == (403, True)
        assert found.peers[0].is_open
        assert not found.drained.is_set()


async def test_peers_are_closed_and_forgotten(tmp_path: Path, anyio_backend: Any) -> None:
    async with quiet(tmp_path, 2) as found, visiting(found.served, may_act=True) as visitor:
        rows = (await visitor.get("/api/peers")).json()["rows"]
        one = rows[0]
        status, text = await visitor.do("close", peer=one["key"])
        assert (status, text) == (200, f"closed the connection with {one['id']}")
        ended = [peer for peer in found.peers if not peer.is_open]
        with anyio.fail_after(PATIENCE):
            while not ended:
                await anyio.lowlevel.checkpoint()
                ended = [peer for peer in found.peers if not peer.is_open]
        with pytest.raises(PeerClosedError, match="closed by an operator"):
            await ended[0].ping()
        assert (await visitor.do("close", peer=one["key"]))[0] == 409
        assert (await visitor.get(f"/api/peers/{one['key']}")).status_code == 404
        assert len(found.known) == 2
        assert await visitor.do("forget", id=one["id"]) == (200, f"forgot {one['id']}")
        assert one["id"] not in [str(peer.node_id) for peer in found.known]
        assert (await visitor.do("forget", id=one["id"]))[0] == 409
        assert (await visitor.do("forget", id=HOSTILE))[0] == 409
        assert (await visitor.do("nothing"))[0] == 409


async def test_successors_are_forgotten_with_the_ended_ids(
    tmp_path: Path, anyio_backend: Any
) -> None:
    old, new, now = Identity.create(), Identity.create(), datetime.now(UTC)
    async with quiet(tmp_path) as found, visiting(found.served, may_act=True) as visitor:
        found.known.add(old.node_id, "bob", now)
        assert (await visitor.do("forget", id=str(new.node_id)))[0] == 409
        found.node.statements.apply(create_succession(old, new).encoded)
        found.node.statements.decide(old.node_id, new.node_id)
        assert (await visitor.do("forget", id=str(new.node_id)))[0] == 200
        assert len(found.known) == 0


async def test_drain_is_forwarded_and_actions_are_logged(
    tmp_path: Path, anyio_backend: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with quiet(tmp_path) as found, visiting(found.served, may_act=True) as visitor:
        status, done = await visitor.do("drain")
        assert (status, found.drained.is_set()) == (200, True)
        (line,) = [one for one in caplog.records if one.name == "parley.console"]
        assert (vars(line)["event"], line.message) == ("console.drain", f"console: {done}")
        assert found.console.view()["node"]["draining"]
        found.console.on_drain = None
        assert (await visitor.do("drain"))[0] == 409


async def test_dead_letters_are_looked_at_replayed_and_dropped(
    tmp_path: Path, anyio_backend: Any
) -> None:
    async with quiet(tmp_path) as found, visiting(found.served, may_act=True) as visitor:
        bus = await dead_letters(found.node, tmp_path)
        address = f"sqlite:///{tmp_path}/bus.db"

        async def letters(**more: str) -> list[dict[str, Any]]:
            answer = await visitor.get("/api/letters", bus=address, stream=STREAM, **more)
            listed: list[dict[str, Any]] = answer.json()["letters"]
            return listed

        first, second, third = await letters()
        assert json.loads(first["body"])["what"] == HOSTILE
        assert first["group"] == "billing"
        assert HOSTILE in first["history"][0]["error"]
        assert [one["id"] for one in await letters(after=first["id"])] == [
            second["id"],
            third["id"],
        ]
        said = {"bus": address, "stream": STREAM}
        done = await visitor.do("replay", **said, letters=[first["id"]])
        assert done == (200, f"replayed 1 dead letter of {STREAM}")
        assert await visitor.do("drop", **said, letters="all") == (
            200,
            f"dropped 2 dead letters of {STREAM}",
        )
        assert await bus.dead_letters(STREAM) == []
        for wrong in ([], [1], "some", ["x"] * 1_001, None):
            assert (await visitor.do("drop", **said, letters=wrong))[0] == 409
        assert (await visitor.do("drop", bus="redis://x", stream="a.b", letters="all"))[0] == 409
        assert (await visitor.do("drop", bus=address, stream="?", letters="all"))[0] == 409
        assert (await visitor.get("/api/letters", bus=address, stream="?")).status_code == 409


async def hang(*_: Any, **options: Any) -> None:
    await anyio.sleep_forever()


async def fail(*_: Any, **options: Any) -> None:
    raise ConfigError("it was never\nthere")


@pytest.mark.parametrize(
    ("what", "looked", "acted"),
    [
        (hang, "the bus did not answer within 0.01 s", "the bus did not answer within 0.02 s"),
        (fail, r"it was never\nthere", r"it was never\nthere"),
    ],
)
async def test_a_bus_that_hangs_or_fails_has_a_clear_answer_in_bounded_time(
    tmp_path: Path,
    anyio_backend: Any,
    monkeypatch: pytest.MonkeyPatch,
    what: Any,
    looked: str,
    acted: str,
) -> None:
    monkeypatch.setattr(buses_view, "PATIENCE", 0.01)
    monkeypatch.setattr(actions, "SETTLING", 0.02)
    for method in ("dead_letters", "replay_dead", "drop_dead"):
        monkeypatch.setattr(Bus, method, what)
    async with quiet(tmp_path) as found, visiting(found.served, may_act=True) as visitor:
        found.node.bus(f"sqlite:///{tmp_path}/bus.db")
        said = {"bus": f"sqlite:///{tmp_path}/bus.db", "stream": STREAM}
        answer = await visitor.get("/api/letters", **said)
        assert (answer.status_code, answer.json()["error"]) == (409, looked)
        for action in ("replay", "drop"):
            done = await visitor.do(action, **said, letters="all")
            assert done == (409, f"the action failed: {acted}")


async def test_rates_and_readers_have_limits(
    tmp_path: Path, anyio_backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with quiet(tmp_path) as found, visiting(found.served) as visitor:
        now = found.node.backend.now()
        monkeypatch.setattr(
            Console, "now", lambda console: now
        )  # On a slow machine, the rate limit recovers no tokens.
        statuses = [(await visitor.post("/enter", token="x")).status_code for _ in range(12)]
        assert statuses.count(429) >= 12 - int(ENTRIES.burst)
        async with anyio.create_task_group() as tasks:
            for _ in range(MOST_READERS):
                await tasks.start(_reading, visitor)
            refused = await visitor.get("/api/events")
            assert (refused.status_code, "close one" in refused.text) == (503, True)
            tasks.cancel_scope.cancel()
        statuses = [(await visitor.get("/api/peers")).status_code for _ in range(80)]
        assert 429 in statuses
        assert statuses.index(429) <= REQUESTS.burst


async def _reading(visitor: Visitor, *, task_status: Any) -> None:
    """Read only the first event."""
    url = visitor.headers["origin"]
    cookies = "; ".join(f"{name}={value}" for name, value in visitor.http.cookies.items())
    headers = {**visitor.headers, "host": url.removeprefix("http://"), "cookie": cookies}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    async with await anyio.connect_tcp("127.0.0.1", int(url.rpartition(":")[2])) as stream:
        await stream.send(f"GET /api/events HTTP/1.1\r\n{lines}\r\n".encode())
        came = b""
        while b"\n\n" not in came:
            came += await stream.receive()
        assert b"text/event-stream" in came
        view = json.loads(came.partition(b"data: ")[2].partition(b"\n\n")[0])
        assert view["node"]["id"]
        task_status.started()
        await anyio.sleep_forever()


async def test_a_stream_ends_with_its_session(tmp_path: Path, anyio_backend: Any) -> None:
    async with quiet(tmp_path) as found, visiting(found.served) as visitor:
        found.console.interval = 0.01
        async with visitor.http.stream("GET", "/api/events", headers=visitor.headers) as answer:
            events = answer.aiter_lines()
            assert (await anext(events)).startswith("data: {")
            assert (await visitor.post("/leave")).status_code == 200
            with anyio.fail_after(PATIENCE):
                async for _ in events:
                    pass


async def test_a_program_of_the_user_gets_links(tmp_path: Path, anyio_backend: Any) -> None:
    directory = tmp_path / "consoles"
    async with quiet(tmp_path) as found, visiting(found.served, enters=False) as visitor:
        with found.served.found_in(directory):
            (file,) = directory.iterdir()
            assert (file.stat().st_mode & 0o777, directory.stat().st_mode & 0o777) == (0o600, 0o700)
            (place,) = find_consoles(directory)
            assert place.node_id == str(found.node.node_id)
            link = await anyio.to_thread.run_sync(lambda: request_link(place, may_act=True))
            answer = await visitor.enter(link)
            assert answer.json()["may_act"] is True
            wrong = {**visitor.headers, "authorization": "Bearer x"}
            refused = await visitor.http.post("/links", json={}, headers=wrong)
            assert refused.status_code == 401
        assert find_consoles(directory) == []


async def test_console_is_limited_to_this_machine(tmp_path: Path, anyio_backend: Any) -> None:
    async with quiet(tmp_path) as found:
        for address in ("0.0.0.0:0", "[::]:0", "192.0.2.1:80", "example.org:80"):
            with pytest.raises(InsecureAddressError):
                async with serve_console(found.console, address):
                    pass


async def test_invalid_json_bodies_are_empty(tmp_path: Path, anyio_backend: Any) -> None:
    async with quiet(tmp_path) as found, visiting(found.served, may_act=True) as visitor:
        for content in (b"", b"[]", b"{", b"[" * 60_000, b"\xff"):
            headers = {**visitor.headers, "content-type": "application/json"}
            answer = await visitor.http.post("/api/do/close", content=content, headers=headers)
            assert answer.status_code == 409
        answer = await visitor.http.post("/api/do/close", content=b"{}", headers=visitor.headers)
        assert answer.status_code == 409


def test_the_page_asks_no_other_host() -> None:
    static = Path(__file__).parents[4] / "node/web/console/static"
    for file in static.iterdir():
        text = file.read_text("utf-8")
        for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("):
            assert word not in text, file.name
        allowed = {"http://www.w3.org/2000/svg"}
        hosts = {
            part.split('"')[0].split("'")[0] for part in text.split("http")[1:] if "://" in part[:5]
        }
        assert {f"http{host}" for host in hosts} <= allowed, file.name
