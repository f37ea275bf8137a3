"""Commands of root in the home of a service that runs as another user."""

import os

import pytest

from parley._crypto.identity import Identity
from parley._crypto.statements import create_succession
from parley._node.trust.statement_file import save_statement
from tests.node.cli.processes import Processes
from tests.node.trust.test_files import GROUP, SERVICE, access, as_root


@as_root
@pytest.mark.process
def test_root_changes_nothing_in_the_home_of_another_user(processes: Processes) -> None:
    """The service could redirect the changes, and could not use files that root creates."""
    home = processes.home
    (old, recovery), (new, _) = (Identity.create_recoverable() for _ in range(2))
    statement = processes.directory / "statement"
    save_statement(statement, create_succession(recovery, new))
    commands = [
        ("peers", "add", str(old.node_id), "bob"),
        ("peers", "add", str(old.node_id), "bob", "--accounts"),
        ("peers", "apply", str(statement), "--yes"),
        ("peers", "accept", "bob"),
        ("context", "add", "home", "tcp://127.0.0.1:4747", "--force"),
        ("peers", "forget", "bob"),
        ("id", "new"),
    ]
    for command in commands[:-2]:
        done = processes.run(*command)
        assert (done.code, done.err) == (0, ""), command
    os.chown(home, SERVICE, GROUP)
    before = {path.name: (access(path), path.read_bytes()) for path in home.iterdir()}
    for command in (*commands[:2], *commands[3:]):
        done = processes.run(*command)
        assert done.code != 0, command
        assert f"sudo -u '#{SERVICE}'" in done.err, command
    assert {path.name: (access(path), path.read_bytes()) for path in home.iterdir()} == before
    assert "bob" in processes.run("peers", "list").out
    assert str(new.node_id) in processes.run("peers", "show").out
