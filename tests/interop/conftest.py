"""What the tests that meet other implementations share: the program of the crate bromine.

One rule: where it can't be built for want of cargo or of its packages the tests that ask for
it are skipped with that reason; a program that does not compile is a failure.
"""

from pathlib import Path

import pytest

from tests.interop.bromine_peer import NotAvailableError, build

# Cargo's directories hold no tests, and are many.
collect_ignore = ["bromine"]


@pytest.fixture(scope="session")
def bromine_program() -> Path:
    """The program of tests/interop/bromine, built at the first use of a run."""
    try:
        return build()
    except NotAvailableError as error:
        pytest.skip(f"no bromine to talk to: {error}")
