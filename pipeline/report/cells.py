"""The texts of the report's cells: names, nodes, sessions, codes and captions.

All text that a peer chose passes through `visible`, which escapes control, format and private
characters and limits the length. The template escapes HTML.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final
from unicodedata import category

from parley._node.protocol.codes import ResultCode, code_name
from parley._pipeline.gold.finding_texts import KINDS
from parley._pipeline.report import format as units
from parley._pipeline.report.report_data import CallRow, FindingRow, SessionSummary

NAME_LIMIT: Final = 80  # maximum number of characters shown of a name
MARKS: Final = 2  # maximum number of consecutive combining marks; more would overlap other lines
NODE_NAME: Final = 24  # maximum number of characters of a petname
NODE_SIZE: Final = 8  # minimum number of characters shown of a node ID

# Control and format characters (including those that reverse text), surrogates, private and
# unassigned characters, and line and paragraph separators.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_MARK: Final = frozenset({"Mn", "Me"})


def visible(text: str, limit: int = NAME_LIMIT) -> str:
    r"""Return at most `limit` characters of `text`, and the full length if it is longer.

    Invisible characters are shown as `\\u{X}`.
    """
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
    """Petnames of nodes, and the shortest unique prefixes of node IDs."""

    def __init__(self, ids: Iterable[str], names: Mapping[str, str] | None = None) -> None:
        self._names = {node: visible(name, NODE_NAME) for node, name in (names or {}).items()}
        known = sorted(set(ids))
        self._short: dict[str, str] = {}
        for at, node in enumerate(known):
            beside = known[max(at - 1, 0) : at] + known[at + 1 : at + 2]
            size = max([NODE_SIZE, *(_common(node, other) + 1 for other in beside)])
            self._short[node] = node[:size] + ("…" if len(node) > size else "")

    def short(self, node: str) -> str:
        """Return the unique prefix of a node ID; an unknown ID is returned unchanged."""
        return self._short.get(node, node)

    def name(self, node: str) -> str | None:
        """Return the node's petname, if it has one."""
        return self._names.get(node)

    def display_name(self, node: str) -> str:
        """Return the node's petname or, without one, its short form."""
        return self._names.get(node) or self.short(node)


def _common(one: str, other: str) -> int:
    """Return the length of the common prefix of two strings."""
    size = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        size += 1
    return size


NODE_ID: Final = 52  # length of the node ID with which a segment's name begins
PAGE_ID: Final = 128  # maximum hex digits of an anchor: a 32-byte session ID as text
SEGMENT_LIMIT: Final = 120  # maximum number of characters shown of a segment's name
MOST_CODES: Final = 6  # maximum number of error codes shown for a row of calls


def page_id(session: str) -> str:
    """Return the anchor of a session's page, in hexadecimal so that any session name is safe."""
    return f"session-{session.encode(errors='backslashreplace').hex()[:PAGE_ID]}"


def kind_id(kind: str) -> str:
    """Return the anchor of the explanation of a kind; hexadecimal for unknown kinds."""
    return f"kind-{kind if kind in KINDS else kind.encode(errors='backslashreplace').hex()}"


def closed_name(code: int | None) -> str:
    """Return the name of the code that a session ended with."""
    return "no end in the journal" if code is None else code_name(code)


def result_name(code: int) -> str:
    """Return the name of a result code, or the number if it has no name."""
    try:
        return ResultCode(code).name.lower().replace("_", "-")
    except ValueError:
        return str(code)


def error_codes(row: CallRow) -> str:
    """Return the most frequent error codes of a row of calls, with their counts."""
    codes = sorted((row.error_codes or {}).items(), key=lambda one: -one[1])
    named = [f"{result_name(code)}: {units.count(number)}" for code, number in codes[:MOST_CODES]]
    return ", ".join([*named, *(["…"] if len(codes) > MOST_CODES else [])]) or units.NOTHING


def meaning(kind: str) -> tuple[str, str, str]:
    """Return what a kind of finding proves, what it doesn't prove, and what to do."""
    known = KINDS.get(kind)
    if known is None:
        return (
            "This version of Parley does not know this kind.",
            units.NOTHING,
            "Make the report with a newer version.",
        )
    return known.proves, known.proves_not, known.advice


def place_of(row: FindingRow, nodes: Nodes) -> str:
    """Return the segment and offset of a finding."""
    segment = row.segment or ""
    named = visible(nodes.short(segment[:NODE_ID]) + segment[NODE_ID:], SEGMENT_LIMIT)
    return named if row.offset is None else f"{named} at {row.offset}"


def description(talk: SessionSummary) -> str:
    """Return a description of a session that continues a sentence after its nodes' names."""
    when = "" if talk.started is None else f" on {units.time(talk.started)} UTC"
    long = "" if talk.duration_us is None else f", for {units.duration(talk.duration_us)}"
    suite = "" if talk.suite is None else f", with {visible(talk.suite)}"
    return (
        f"{when}{long}{suite}: {units.counted(talk.events, 'event')}, "
        f"{units.size(talk.wire_bytes)} on the wire. "
        f"It is in {units.counted(talk.journals, 'journal')}. "
        f"It ended with: {ending(talk)}."
    )


def ending(row: SessionSummary) -> str:
    """Return how a session ended: one code if both ends agree, else both codes."""
    told = [closed_name(code) for code in (row.initiator_code, row.responder_code)]
    if row.journals < 2:  # the other end's journal is not available
        told = [name for name in told if name != closed_name(None)] or told[:1]
    return told[0] if len(set(told)) == 1 else f"{told[0]}; responder: {told[1]}"


def claimed_time(millis: int | None) -> str:
    """Return a signer's time in ms since the epoch, as a number of ms if no date can show it."""
    try:
        return units.time(None if millis is None else millis * 1000)
    except OverflowError:
        return f"{millis:,} ms"


def first_of(what: str, shown: int, of: int | None, limit: int) -> str:
    """Return a caption for a table limited to `limit` rows.

    If rows are missing, it says how many there are and which option shows more.
    """
    cut = shown == limit if of is None else shown < of
    if not cut:
        return f"{what}."
    all_ = "" if of is None else f" of {units.count(of)}"
    return f"{what}. The first {units.count(shown)}{all_}; use --rows to show more."
