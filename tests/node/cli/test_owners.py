"""Files that commands of root leave to a service of another user."""

import os

import pytest

from parley._crypto.identity import Identity
from parley._crypto.statements import create_succession
from parley._node.trust.statement_file import save_statement
from tests.node.cli.processes import Processes
from tests.node.trust.test_files import GROUP, OTHERS, SERVICE, access, as_root, file_of


@as_root
@pytest.mark.process
def test_a_service_can_use_what_root_has_written(processes: Processes) -> None:
    """`sudo parley peers ..` changes the files of a server that runs as another user."""
    home = processes.home
    home.mkdir()
    os.chown(home, SERVICE, GROUP)
    (old, recovery), (new, _) = (Identity.create_recoverable() for _ in range(2))
    statement = processes.directory / "statement"
    save_statement(statement, create_succession(recovery, new))
    known = file_of(home / "accounts", SERVICE, OTHERS, 0o640)
    known.write_bytes(b"")
    for command in (
        ("peers", "add", str(old.node_id), "bob"),
        ("peers", "add", str(old.node_id), "bob", "--accounts"),
        ("peers", "apply", str(statement), "--yes"),
        ("peers", "accept", "bob"),
        ("context", "add", "home", "tcp://127.0.0.1:4747"),
    ):
        done = processes.run(*command)
        assert (done.code, done.err) == (0, ""), command
    found = {path.name: access(path) for path in home.iterdir()}
    assert found.pop("accounts") == (SERVICE, OTHERS, 0o640)
    assert found.keys() > {"known_peers", "known_peers.lock", "key_statements", "accounts.lock"}
    assert set(found.values()) == {(SERVICE, GROUP, 0o600)}
