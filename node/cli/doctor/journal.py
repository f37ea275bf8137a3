"""What `parley doctor` says of the journal in the settings: its directory and its keys.

Looking changes nothing; without a journal in the settings nothing is said.
"""

import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from parley._crypto.keyfile import AUDITOR_MAGIC
from parley._node.cli.doctor.findings import Diagnosis, Level
from parley._node.errors import ConfigError, ParleyError
from parley._node.settings import JournalSettings, load_settings
from parley._node.trust.known_peers import default_known_peers

# Segments that the disk should have room for at least.
FEW_SEGMENTS: Final = 4
MOST_FILES: Final = 1_000  # of a directory that are looked at

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_WHAT_SHOWS: Final = "who talked to whom, when and how much is not encrypted"


def check_journal(path: Path | None) -> Iterator[Diagnosis]:
    """What the settings (those in the file at `path`, and the variables) say of a journal."""
    try:
        settings = load_settings(path).journal
    except ParleyError:
        return  # said of the settings as a whole
    yield from check_kept(settings)


def check_kept(settings: JournalSettings) -> Iterator[Diagnosis]:
    """What settings say of a journal; nothing without one."""
    if settings.directory is None and not settings.auditors:
        return
    if settings.directory is None or not settings.auditors:
        what = "a directory" if settings.directory is None else "an auditor's key"
        text = f"the settings of the journal lack {what}: parley serve will not start"
        yield Diagnosis(
            Level.PROBLEM, "journal", text, "name journal.directory and journal.auditors"
        )
        return
    yield from _check_directory(settings, settings.directory)
    yield from _check_auditors(settings)
    yield from _check_keys([settings.directory, *_home()])


def _check_directory(settings: JournalSettings, directory: Path) -> Iterator[Diagnosis]:
    subject = f"journal {directory}"
    if not directory.exists():
        yield Diagnosis(Level.OK, subject, "it is not there yet; parley serve makes it")
        return
    if not directory.is_dir() or not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        text = "it is not a directory that you can write to: parley serve will not start"
        yield Diagnosis(Level.PROBLEM, subject, text, "name another one")
        return
    status = directory.stat()
    if status.st_uid != os.geteuid() or status.st_mode & _WRITE:
        text = "others may remove or replace segments, which only other journals would show"
        yield Diagnosis(Level.PROBLEM, subject, text, f"chown {os.geteuid()} it, and chmod 700 it")
    elif status.st_mode & _OTHERS:
        text = f"others may look into it; {_WHAT_SHOWS}"
        yield Diagnosis(Level.WEAK, subject, text, f"chmod 700 '{directory}'")
    else:
        yield Diagnosis(Level.OK, subject, "it is yours alone")
    free = shutil.disk_usage(directory).free
    if free < FEW_SEGMENTS * settings.segment_size:
        text = f"{free:,} bytes are free: few segments of {settings.segment_size:,}"
        follows = "the node will stop" if settings.on_failure == "stop" else "it will end"
        yield Diagnosis(Level.WEAK, "journal's disk", f"{text}; once it is full, {follows}", _PRUNE)


_PRUNE: Final = "parley journal prune --max-size, now and then"


def _check_auditors(settings: JournalSettings) -> Iterator[Diagnosis]:
    count = len(set(settings.auditors))
    if count == 1:
        text = "one can read the journal: if that key is lost, the journal cannot be read"
        yield Diagnosis(Level.NOTE, "auditors", text, "name a second one, whose key is kept away")
    else:
        yield Diagnosis(Level.OK, "auditors", f"{count} can read the journal, each alone")


def _check_keys(directories: Iterable[Path]) -> Iterator[Diagnosis]:
    """A private key beside what is sealed to it protects nothing."""
    for directory in directories:
        try:
            found = [path for path in sorted(directory.iterdir())[:MOST_FILES] if _is_key(path)]
        except OSError:
            continue
        for path in found:
            text = "an auditor's private key: whoever takes this machine reads its journal"
            yield Diagnosis(Level.WEAK, f"file {path}", text, "keep it on another machine")


def _is_key(path: Path) -> bool:
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(AUDITOR_MAGIC)) == AUDITOR_MAGIC
    except OSError:
        return False  # not ours to read, so nor are its boxes to open


def _home() -> list[Path]:
    try:
        return [default_known_peers().parent]
    except ConfigError:
        return []
