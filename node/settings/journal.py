"""Whether a node keeps a journal, and how: the table `[journal]`.

Nothing is created or looked for on the disk until `open`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, get_args

from parley._crypto.auditor import AuditorKey
from parley._crypto.errors import InvalidKeyError
from parley._node.errors import ConfigError
from parley._node.journal.options import LEAST_BUFFER_SIZE, SEGMENT_SIZE, Fsync, OnFailure
from parley._node.protocol.config_types import check_types, setting

if TYPE_CHECKING:
    from parley._node.journal.journal import Journal

FSYNC: Final[tuple[str, ...]] = get_args(Fsync)
ON_FAILURE: Final[tuple[str, ...]] = get_args(OnFailure)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings:
    """How a node keeps its journal.

    Raises:
        ConfigError: a value out of range, or not an auditor's key.
    """

    directory: Annotated[
        Path | None, setting("Directory of the segments; without it no journal is kept.")
    ] = None
    auditors: Annotated[
        tuple[str, ...],
        setting("Keys that can read the journal, from `parley journal keygen`; at least one."),
    ] = ()
    segment_size: Annotated[
        int,
        setting(
            "Size after which a segment is closed; after an hour it is closed too. An eighth of it "
            "can wait to be written before connections wait.",
            unit="bytes",
            ge=1 << 16,
        ),
    ] = SEGMENT_SIZE
    fsync: Annotated[
        Fsync,
        setting(
            "When records are forced to the disk: always (before anything is sent), interval (each "
            "second) or never (the system decides)."
        ),
    ] = "interval"
    on_failure: Annotated[
        OnFailure,
        setting(
            "When the journal can't be written: alarm (the node continues without it) or stop (all "
            "connections are closed)."
        ),
    ] = "alarm"

    def __post_init__(self) -> None:
        check_types(self, ConfigError)
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
            buffer_size=max(self.segment_size // 8, LEAST_BUFFER_SIZE),
            fsync=self.fsync,
            on_failure=self.on_failure,
        )


def _parse(texts: tuple[str, ...]) -> tuple[AuditorKey, ...]:
    try:
        return tuple(map(AuditorKey.parse, texts))
    except InvalidKeyError as error:
        raise ConfigError(str(error)) from error
