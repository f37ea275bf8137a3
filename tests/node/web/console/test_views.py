"""The data of the console: limited in length, one line each, and read only on request."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from parley._crypto.identity import Identity, NodeId
from parley._crypto.statements import create_succession
from parley._node.errors import CallRefused
from parley._node.metrics import catalogue
from parley._node.metrics.catalogue import Histogram, labelled
from parley._node.trust.known_peers import KnownPeers
from parley._node.web.console import views as peers_module
from parley._node.web.console.console import Console
from parley._node.web.console.views import (
    LONGEST,
    PeerNumbers,
    display_text,
    numbers_view,
    peers_view,
)
from tests.node.network import PATIENCE, config, meeting
from tests.node.web.console.busy import LONG, SCRIPT, busy


def test_text_is_one_line_and_bounded() -> None:
    assert display_text("plain") == "plain"
    assert display_text("a\nb\x1b[2J\u202e") == r"a\nb\x1b[2J\u202e"
    assert display_text(LONG) == LONG[: LONGEST - 1] + "…"
    assert len(display_text("\n" * LONGEST)) == LONGEST
    assert len(display_text("x" * LONGEST)) == LONGEST


async def test_peers_are_numbered_searched_and_bounded(
    anyio_backend: Any, monkeypatch: Any
) -> None:
    async with meeting() as met:
        numbers, names = PeerNumbers(), {met.client.node_id: "shop\n"}
        view = peers_view(met.server, numbers, names)
        (row,) = view["rows"]
        assert (view["total"], view["fitting"], row["name"]) == (1, 1, "shop\\n")
        assert (row["id"], row["dialled"], row["way"]) == (str(met.client.node_id), False, [])
        assert numbers.find(met.server.peers, row["key"]) is met.back
        assert peers_view(met.server, numbers, names)["rows"][0]["key"] == row["key"]
        for find in ("SHOP", row["id"][:8], "stream"):
            assert peers_view(met.server, numbers, names, find)["rows"] == [row]
        found = peers_view(met.server, numbers, names, "nobody")
        assert (found["total"], found["fitting"], found["rows"]) == (1, 0, [])
        monkeypatch.setattr(peers_module, "MOST_PEERS", 0)
        assert peers_view(met.server, numbers, names)["rows"] == []


async def test_bytes_are_shown_for_each_peer(anyio_backend: Any) -> None:
    async with meeting() as met, Console(met.server) as console:
        (before,) = console.view()["peers"]["rows"]
        with pytest.raises(CallRefused):
            await met.peer.call("nobody.has.this", b"x" * 10_000)
        (after,) = console.view()["peers"]["rows"]
        assert after["received"] - before["received"] > 10_000
        assert 0 < after["sent"] - before["sent"] < 1_000


async def test_peer_is_shown_with_its_open_streams_and_calls(anyio_backend: Any) -> None:
    hostile = config(info={"app": SCRIPT})
    async with meeting(client=hostile) as met:

        @met.server.on_stream("files")
        async def files(stream: Any) -> None:
            await anyio.sleep_forever()

        topic = met.server.topic("prices")
        async with Console(met.server) as console, met.peer.subscribe("prices"):
            met.peer.open_stream("files")
            await met.peer.ping()
            (row,) = console.view()["peers"]["rows"]
            peer = console.peer(row["key"])
            assert peer is not None
            assert [one["label"] for one in peer["stream_list"]] == ["files"]
            assert peer["topics"] == ["prices"]
            assert peer["info"] == {"app": SCRIPT}
            assert peer["waiting"] == peer["waiting_events"] == 0
            assert console.peer(row["key"] + 1) is None
            (shown_topic,) = console.view()["topics"]["rows"]
            assert (shown_topic["subscribers"], topic.name) == (1, "prices")


def test_numbers_are_shown_with_labels_and_bounds() -> None:
    times = Histogram((0.1, 1.0))
    times.observe(0.5)
    family = labelled(catalogue.CALL_RECEIVED_TIME, [(("a\nb",), times)])
    (view,) = numbers_view([family])
    assert view["samples"] == [
        {"labels": ["a\\nb"], "bounds": (0.1, 1.0), "counts": [0, 1, 0], "sum": 0.5}
    ]


async def test_successors_of_ended_ids_have_their_names(tmp_path: Path, anyio_backend: Any) -> None:
    old, now = Identity.create(), datetime.now(UTC)
    asked: list[int] = []

    def find() -> list[dict[str, str]]:
        asked.append(1)
        return []

    async with meeting() as met:
        known = KnownPeers(tmp_path / "known_peers")
        known.add(old.node_id, "bob", now)
        statements = met.server.statements
        async with Console(met.server, known_peers=known, findings=find) as console:
            console.view()
            with anyio.fail_after(PATIENCE):
                while not asked:
                    await anyio.lowlevel.checkpoint()
            assert console.view()["peers"]["rows"][0]["name"] == ""
            # A change is shown without waiting for the next check.
            statements.apply(create_succession(old, met.client.identity).encoded)
            statements.decide(old.node_id, met.client.node_id)
            with anyio.fail_after(PATIENCE):
                while console.view()["peers"]["rows"][0]["name"] != "bob" or len(asked) < 2:
                    await anyio.lowlevel.checkpoint()
            known.add(met.client.node_id, "robert", now)
            console.refresh()
            with anyio.fail_after(PATIENCE):
                while console.view()["peers"]["rows"][0]["name"] != "robert":
                    await anyio.lowlevel.checkpoint()
        assert console.refresh not in statements.listeners


async def test_names_and_findings_are_fetched_in_the_background(
    tmp_path: Path, anyio_backend: Any
) -> None:
    asked = []

    def find() -> list[dict[str, str]]:
        asked.append(1)
        return [{"level": "ok", "subject": "a\nb", "text": "", "mend": ""}]

    async with meeting() as met:
        known = KnownPeers(tmp_path / "known_peers")
        known.add(met.server.node_id, "tcp://127.0.0.1:1", datetime.now(UTC))
        known.add(met.server.node_id, "shop", datetime.now(UTC))
        async with Console(met.server, known_peers=known, findings=find) as console:
            assert console.view()["findings"] is None
            with anyio.fail_after(PATIENCE):
                while (view := console.view())["findings"] is None:
                    await anyio.lowlevel.checkpoint()
            assert (view["node"]["name"], view["findings"][0]["subject"]) == ("shop", "a\\nb")
            first = console.encoded()
            assert console.encoded() is first
            assert json.loads(first)["node"]["id"] == str(met.server.node_id)
            assert asked == [1]
            known.path.write_text("no such line")  # Missing names are not a failure.
            console.refresh()
            console.view()
            with anyio.fail_after(PATIENCE):
                while len(asked) < 2 or console.view()["node"]["name"]:
                    await anyio.lowlevel.checkpoint()


async def test_busy_server_is_shown_completely(tmp_path: Path, anyio_backend: Any) -> None:
    async with busy(tmp_path, 3) as found:
        console = found.console
        with anyio.fail_after(PATIENCE):
            while len(_ways(console)) < 2 or not any(
                bus["streams"] for bus in console.view()["buses"]
            ):
                console.refresh()
                await anyio.sleep(0.01)
        view = console.view()
        json.dumps(view)
        federation = view["federation"]
        assert len(federation["servers"]) == 6
        ways = _ways(console)
        assert {len(way) for way in ways} == {3, 4}  # There and back.
        assert all(NodeId.parse(one) for way in ways for one in way)
        (bus,) = view["buses"]
        (stream,) = bus["streams"]
        assert (bus["dead"], stream["dead"], bus["error"]) == (3, 3, None)
        assert {group["name"]: group["lag"] for group in stream["groups"]} == {
            "billing": 9,
            "mailer": 0,
        }
        assert view["journal"]["running"]
        assert view["journal"]["records"] > 0
        names = {family["name"] for family in view["numbers"]}
        # The names that the page looks up.
        assert names >= {
            "calls_received",
            "call_received",
            "notes_published",
            "notes_delivered",
            "received",
            "sent",
            "loop_processor",
            "requests_refused",
            "journal_records",
            "journal_written",
        }


def _ways(console: Console) -> set[tuple[str, ...]]:
    return {tuple(row["way"]) for row in console.view()["peers"]["rows"] if row["way"]}
