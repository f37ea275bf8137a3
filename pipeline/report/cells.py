"""The texts of the report's cells: names, nodes, sessions, codes and captions.

Every text that a peer chose goes through `visible`, which removes control, format and private
characters and limits the length. The template escapes the result.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final
from unicodedata import category

from parley._node.protocol.codes import ResultCode, code_name
from parley._pipeline.gold.finding_texts import KINDS
from parley._pipeline.report import format as units
from parley._pipeline.report.report_data import CallRow, FindingRow, SessionSummary

NAME_LIMIT: Final = 80  # characters that are shown of a name
MARKS: Final = 2  # combining marks in a row, of which more pile up over other lines
NODE_NAME: Final = 24  # characters of the name that a reader gave a node
NODE_SIZE: Final = 8  # characters of a node id, at least

# Controls, formats (among them those that turn text around), surrogates, private and
# unassigned ones, and separators of lines and paragraphs.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_MARK: Final = frozenset({"Mn", "Me"})


def visible(text: str, limit: int = NAME_LIMIT) -> str:
    """At most `limit` characters of `text`, then how many there are; unseen ones as `\\uXXXX`."""
    shown = []
    marks = 0
    for character in islice(text, limit):
        kind = category(character)
        marks = marks + 1 if kind in _MARK else 0
        unseen = kind in _UNSEEN or (kind == "Zs" and character != " ") or marks > MARKS
        shown.append(f"\\u{{{ord(character):x}}}" if unseen else character)
    if len(text) > limit:
        shown.append(f"… ({len(text):,} characters)")
    return "".join(shown)


class Nodes:
    """Names of nodes where they are known, and short forms of their ids, as long as tells them
    apart."""

    def __init__(self, ids: Iterable[str], names: Mapping[str, str] | None = None) -> None:
        self._names = {node: visible(name, NODE_NAME) for node, name in (names or {}).items()}
        known = sorted(set(ids))
        self._short: dict[str, str] = {}
        for at, node in enumerate(known):
            beside = known[max(at - 1, 0) : at] + known[at + 1 : at + 2]
            size = max([NODE_SIZE, *(_common(node, other) + 1 for other in beside)])
            self._short[node] = node[:size] + ("…" if len(node) > size else "")

    def short(self, node: str) -> str:
        """The short form; of a node that was not among them, the id as it is."""
        return self._short.get(node, node)

    def name(self, node: str) -> str | None:
        """The name that the reader knows it by."""
        return self._names.get(node)

    def display_name(self, node: str) -> str:
        """The name, or else the short form."""
        return self._names.get(node) or self.short(node)


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with in common."""
    size = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        size += 1
    return size


NODE_ID: Final = 52  # characters of the node id with which the name of a segment begins
PAGE_ID: Final = 128  # digits of the anchor of a session's page: a session id of 32 bytes, as text
SEGMENT_LIMIT: Final = 120  # characters that are shown of the name of a segment
MOST_CODES: Final = 6  # error codes that are shown for a row of calls


def page_id(session: str) -> str:
    """Return the anchor of a session's page: hexadecimal, whatever the name of the session."""
    return f"session-{session.encode(errors='backslashreplace').hex()[:PAGE_ID]}"


def kind_id(kind: str) -> str:
    """Return the anchor at which a kind of finding is explained; hexadecimal for unknown kinds."""
    return f"kind-{kind if kind in KINDS else kind.encode(errors='backslashreplace').hex()}"


def closed_name(code: int | None) -> str:
    """Return the name of the code with which a session ended."""
    return "no end in the journal" if code is None else code_name(code)


def result_name(code: int) -> str:
    """Return the name of a result code, or the number if it has no name."""
    try:
        return ResultCode(code).name.lower().replace("_", "-")
    except ValueError:
        return str(code)


def error_codes(row: CallRow) -> str:
    """Return the most frequent error codes of some calls, with their counts."""
    codes = sorted((row.error_codes or {}).items(), key=lambda one: -one[1])
    named = [f"{result_name(code)}: {units.count(number)}" for code, number in codes[:MOST_CODES]]
    return ", ".join([*named, *(["…"] if len(codes) > MOST_CODES else [])]) or units.NOTHING


def meaning(kind: str) -> tuple[str, str, str]:
    """Return what a kind of finding proves, what it does not prove, and what to do."""
    known = KINDS.get(kind)
    if known is None:
        return "This version does not know it.", units.NOTHING, "Read it with a newer version."
    return known.proves, known.proves_not, known.advice


def place_of(row: FindingRow, nodes: Nodes) -> str:
    """Return the segment of a finding, and the offset in it."""
    segment = row.segment or ""
    named = visible(nodes.short(segment[:NODE_ID]) + segment[NODE_ID:], SEGMENT_LIMIT)
    return named if row.offset is None else f"{named} at {row.offset}"


def description(talk: SessionSummary) -> str:
    """Return a sentence about a session, to follow the names of its nodes."""
    when = "" if talk.started is None else f" on {units.time(talk.started)} UTC"
    long = "" if talk.duration_us is None else f", for {units.duration(talk.duration_us)}"
    suite = "" if talk.suite is None else f", with {visible(talk.suite)}"
    return (
        f"{when}{long}{suite}: {units.counted(talk.events, 'event')}, "
        f"{units.size(talk.wire_bytes)} on the wire. "
        f"{units.counted(talk.journals, 'journal')} {'has' if talk.journals == 1 else 'have'} it. "
        f"It ended with: {ending(talk)}."
    )


def ending(row: SessionSummary) -> str:
    """Return how a session ended: once if both ends agree, else for both."""
    told = [closed_name(code) for code in (row.initiator_code, row.responder_code)]
    if row.journals < 2:  # the other end has no journal here
        told = [name for name in told if name != closed_name(None)] or told[:1]
    return told[0] if len(set(told)) == 1 else f"{told[0]}; responder: {told[1]}"


def first_of(what: str, shown: int, of: int | None, limit: int) -> str:
    """Return a caption for a table of at most `limit` rows: how many of all rows it has, and which
    option shows more."""
    cut = shown == limit if of is None else shown < of
    if not cut:
        return f"{what}."
    all_ = "" if of is None else f" of {units.count(of)}"
    return f"{what}. The first {units.count(shown)}{all_}: the option --rows shows more."
