"""The applications are met by their commands, as the tests of the command line meet theirs."""

from tests.node.cli.conftest import own_logging as own_logging
from tests.node.cli.conftest import parley as parley
from tests.node.cli.conftest import processes as processes
from tests.node.cli.conftest import server as server
