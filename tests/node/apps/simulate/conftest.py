"""One simulation for all tests that read journals; none of them changes it."""

from pathlib import Path
from shutil import copytree

import pytest

from tests.node.apps.simulate.journals import Audited, Simulated, audit, make


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    """Journals that nobody may tamper with."""
    return make(tmp_path_factory.mktemp("simulated") / "journals")


@pytest.fixture(scope="session")
def audited(simulated: Simulated) -> Audited:
    """What an audit says of them."""
    return audit(simulated.directory, simulated.key)


@pytest.fixture
def copied(simulated: Simulated, tmp_path: Path) -> Path:
    """A directory with the same journals, to do with as one likes."""
    return copytree(simulated.directory, tmp_path / "journals")
