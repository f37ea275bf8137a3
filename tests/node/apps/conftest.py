"""Fixtures to run the applications' commands, as in the tests of the command line."""

from tests.node.cli.conftest import own_logging as own_logging
from tests.node.cli.conftest import parley as parley
from tests.node.cli.conftest import processes as processes
from tests.node.cli.conftest import server as server
