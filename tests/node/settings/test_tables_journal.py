"""Opening the journal of the settings."""

from dataclasses import astuple
from pathlib import Path

import pytest

from parley._crypto.auditor import AuditorPrivateKey
from parley._node.errors import ConfigError
from parley._node.settings.tables import JournalSettings

KEY = AuditorPrivateKey.create().public


def test_a_journal_as_the_settings_have_it(tmp_path: Path) -> None:
    directory = tmp_path / "journal"
    journal = JournalSettings(
        directory=directory,
        auditors=(KEY.text,),
        segment_size=65_536,
        fsync="always",
        on_failure="stop",
    ).open()
    assert journal is not None
    assert astuple(journal.settings)[:2] == (directory, (KEY,))
    assert astuple(journal.settings)[2:-1] == (65_536, 3_600, 65_536, "always", 1, "stop")
    assert directory.stat().st_mode & 0o777 == 0o700


def test_no_journal() -> None:
    assert JournalSettings().open() is None


def test_one_half_of_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="it has no auditor"):
        JournalSettings(directory=tmp_path / "journal").open()
    with pytest.raises(ConfigError, match=r"set journal\.directory or give"):
        JournalSettings(auditors=(KEY.text,)).open()
    assert list(tmp_path.iterdir()) == []
