"""Whether a node keeps a journal, and how: the table `[journal]`.

Nothing is created or looked for on the disk until `open`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

from parley._crypto.auditor import AuditorKey
from parley._crypto.errors import InvalidKeyError
from parley._node.config import Range, require_in_range
from parley._node.errors import ConfigError
from parley._node.journal.options import BUFFER_SIZE, SEGMENT_AGE, SEGMENT_SIZE, Fsync, OnFailure
from parley._node.protocol.typed import check_types

if TYPE_CHECKING:
    from parley._node.journal.journal import Journal

FSYNC: Final[tuple[str, ...]] = get_args(Fsync)
ON_FAILURE: Final[tuple[str, ...]] = get_args(OnFailure)

# Every setting of `JournalSettings` that is a number.
JOURNAL_RANGES: Final[Mapping[str, Range]] = {
    "segment_size": Range(1 << 16),
    "segment_age": Range(1),
    "buffer_size": Range(1 << 16),
    "fsync_interval": Range(0.01),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings:
    """How a node keeps its journal.

    Attributes:
        directory: where the segments are; None: no journal is kept.
        auditors: the keys of those that can read it, as `parley journal keygen` prints
            them; a journal needs at least one.
        segment_size: bytes after which a segment is closed, at least 65,536.
        segment_age: seconds after which it is closed too, at least 1.
        buffer_size: bytes that may wait to be written before the connections wait, at
            least 65,536.
        fsync: always (nothing is sent before the record of it is on the disk), interval,
            or never (the system decides).
        fsync_interval: seconds between two times that the file is synchronised, at least
            0.01; for `interval`.
        on_failure: what follows when the journal cannot be written: alarm (the node goes on
            without) or stop (all connections are closed).

    Raises:
        ConfigError: a value out of range, or no auditor's key.
    """

    directory: Path | None = None
    auditors: tuple[str, ...] = ()
    segment_size: int = SEGMENT_SIZE
    segment_age: float = SEGMENT_AGE
    buffer_size: int = BUFFER_SIZE
    fsync: Fsync = "interval"
    fsync_interval: float = 1.0
    on_failure: OnFailure = "alarm"

    def __post_init__(self) -> None:
        check_types(self, ConfigError)
        for name, allowed in JOURNAL_RANGES.items():
            require_in_range(name, getattr(self, name), allowed)
        _parse(self.auditors)

    @property
    def keys(self) -> tuple[AuditorKey, ...]:
        """The auditors' keys."""
        return _parse(self.auditors)

    def open(self) -> "Journal | None":
        """The journal that these settings want, for `Node(journal=...)`; None without a directory.

        Raises:
            ConfigError: a directory without an auditor, or the other way round.
            JournalFailedError: the directory cannot be made.
        """
        if self.directory is None:
            if self.auditors:
                raise ConfigError(
                    f"there are auditors ({len(self.auditors)}), and no directory for a journal; "
                    "set journal.directory or --journal"
                )
            return None
        if not self.auditors:
            raise ConfigError(
                f"cannot keep a journal in '{self.directory}': a journal needs an auditor's key: "
                "parley journal keygen makes one"
            )
        from parley._node.journal.journal import Journal

        return Journal.open(
            self.directory,
            self.keys,
            segment_size=self.segment_size,
            segment_age=self.segment_age,
            buffer_size=self.buffer_size,
            fsync=self.fsync,
            fsync_interval=self.fsync_interval,
            on_failure=self.on_failure,
        )


def _parse(texts: tuple[str, ...]) -> tuple[AuditorKey, ...]:
    try:
        return tuple(map(AuditorKey.parse, texts))
    except InvalidKeyError as error:
        raise ConfigError(str(error)) from error
