"""Petnames in what commands print: lines of JSON, failures, the log, and lines for people."""

import io
import logging
import sys

import pytest

from parley._node.cli.exit_codes import Exit
from parley._node.cli.logging_setup import set_up_logging
from parley._node.cli.output import CommandFailure, Output
from parley._node.trust.known_peers import KnownPeers, default_known_peers
from tests.node.cli.completion.test_suggestions import ALICE, NOW
from tests.node.cli.conftest import Parley, said


@pytest.fixture(autouse=True)
def known() -> KnownPeers:
    """Alice is on record."""
    known = KnownPeers(default_known_peers())
    known.add(ALICE, "alice", NOW)
    return known


def test_json_has_it_beside_the_id(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(as_json=True)
    out.event("met", node_id=str(ALICE), data={"node_id": str(ALICE)})
    out.event("met", node_id=None)
    assert capsys.readouterr().out.splitlines() == [
        f'{{"event": "met", "node_id": "{ALICE}", "data": {{"node_id": "{ALICE}"}}, '
        '"petname": "alice"}',
        '{"event": "met", "node_id": null}',
    ]


def test_a_failure_names_whom_it_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    text = f"refused {ALICE} at tcp://a:1#{ALICE}"
    Output(as_json=False).fail(CommandFailure(Exit.NOT_TRUSTED, 5, "refused", text))
    assert capsys.readouterr().err == (f"parley: refused {ALICE} (alice) at tcp://a:1#{ALICE}\n")


def test_the_log_does_too(monkeypatch: pytest.MonkeyPatch) -> None:
    root, log = logging.getLogger(), io.StringIO()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(sys, "stderr", log)
    set_up_logging("info")
    logging.getLogger("parley.peer").warning("peer %s ended", ALICE.short)
    assert log.getvalue().endswith(f"peer {ALICE.short} (alice) ended\n")


def test_what_people_see(parley: Parley, server: str, known: KnownPeers) -> None:
    node_id = server.partition("#")[2]
    assert parley("peers", "add", node_id, "bob").code == 0
    shown = parley("ping", server, "--count", "1").out
    assert shown.startswith(f"{node_id} (bob): ")
    assert (
        said(parley("call", server, "parley.echo", "x", "--json"), "connected")[0]["petname"]
        == "bob"
    )
    assert f"{node_id} (bob)" in parley("doctor", server, "--count", "1").out
    wrong = parley("peers", "add", "bob", "bob")
    assert (wrong.code, wrong.err) == (
        2,
        "parley: invalid node ID 'bob': expected 52 base32 characters\n",
    )
    taken = parley("peers", "add", node_id, "alice")
    assert (taken.code, "cannot use the name 'alice' for" in taken.err) == (6, True)
