"""One simulation for all tests that read journals, which must not change them."""

from pathlib import Path
from shutil import copytree

import pytest

from tests.node.apps.simulate.journals import Audited, Simulated, audit, make


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    """The journals of the simulation, which tests must not change."""
    return make(tmp_path_factory.mktemp("simulated") / "journals")


@pytest.fixture(scope="session")
def audited(simulated: Simulated) -> Audited:
    """The results of an audit of the journals."""
    return audit(simulated.directory, simulated.key)


@pytest.fixture
def copied(simulated: Simulated, tmp_path: Path) -> Path:
    """A directory with copies of the journals, which a test may change."""
    return copytree(simulated.directory, tmp_path / "journals")
