"""What doctor finds for a node that runs, by the settings that hold there: the console shows it."""

from collections.abc import Iterator
from dataclasses import asdict

from parley._node.cli.doctor.addresses import check_dialects
from parley._node.cli.doctor.bus import check_offered
from parley._node.cli.doctor.findings import Diagnosis
from parley._node.cli.doctor.journal import check_kept
from parley._node.cli.doctor.machine import check_machine
from parley._node.settings import Settings


def findings(settings: Settings) -> list[dict[str, str]]:
    """Of this machine, and of dialects, journal and bus of the settings; it reads files."""
    return [asdict(found) for found in _diagnoses(settings)]


def _diagnoses(settings: Settings) -> Iterator[Diagnosis]:
    yield from check_machine()
    yield from check_dialects(settings)
    yield from check_kept(settings.journal)
    yield from check_offered(settings)
