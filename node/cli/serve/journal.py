"""The journal of `parley serve`: its options, its announcement, and how its failure ends a node.

A journal that fails is always reported; `on_failure` decides whether the node goes on without it.
"""

from pathlib import Path

from parley._node.cli.output import Output
from parley._node.journal.journal import Journal


def journal_told(
    directory: Path | None,
    auditors: list[str] | None,
    fsync: str | None,
    on_failure: str | None,
) -> dict[str, tuple[str, object]]:
    """Return the options that set the table `[journal]`, for `load_settings`."""
    return {
        "journal.directory": ("--journal", directory),
        "journal.auditors": ("--auditor", auditors or None),
        "journal.fsync": ("--journal-fsync", fsync),
        "journal.on_failure": ("--journal-on-failure", on_failure),
    }


def announce_journal(out: Output, journal: Journal) -> None:
    """Say where it is kept and for whom, and what of earlier runs was recovered."""
    for each in journal.recovered:
        cut = f", {each.cut:,} bytes cut off its end" if each.cut else ""
        damaged = f", {each.damaged:,} damaged" if each.damaged else ""
        out.say(f"closed {each.name}, left by a crash: {each.records:,} records{damaged}{cut}")
        out.event(
            "recovered",
            segment=str(each.name),
            records=each.records,
            damaged=each.damaged,
            cut=each.cut,
        )
    auditors = [key.text for key in journal.settings.auditors]
    out.say(f"keeping a journal in {journal.directory} for {', '.join(auditors)}")
    out.event("journal", directory=str(journal.directory), auditors=auditors)


async def watch_journal(out: Output, journal: Journal) -> None:
    """Wait until it fails, and say so; raise JournalFailedError if that ends the node."""
    error = await journal.failure()
    if journal.stops_node:
        raise error
    out.event("journal-failed", text=str(error))
