"""`parley errors`: what a code means, where it comes from, and what to do about it."""

from typing import Final

import click
from rich import box
from rich.table import Table

from parley._node.cli.explanations import EXPLANATIONS, Explanation, Kind, explain
from parley._node.cli.output import Output
from parley._node.errors import ConfigError
from parley._node.protocol.codes import FIRST_APPLICATION_CODE, LAST_CODE

TITLES: Final[dict[Kind, str]] = {
    "close": "Close codes: how connections and streams end",
    "result": "Result codes: how calls and subscriptions are answered",
    "event": "Named events: what an Error says beside the codes of results",
    "relay": "Relay codes: what an event relay tells its clients",
    "exit": "Exit codes: how commands end",
}


def errors(code: str | None, as_json: bool) -> None:
    """Explain close codes, result codes, those of other dialects, and exit codes."""
    found = EXPLANATIONS if code is None else explain(code)
    if not found:
        raise ConfigError(_unknown(code or ""))
    out = Output(as_json)
    for explanation in found:
        out.event("code", **_described(explanation))
    if code is None:
        for kind, title in TITLES.items():
            out.table(_table(title, [e for e in found if e.kind == kind]))
    else:
        for explanation in found:
            _show(out, explanation)
    out.done(count=len(found))


def _unknown(code: str) -> str:
    if code.isdecimal() and FIRST_APPLICATION_CODE <= int(code) <= LAST_CODE:
        return f"{code} is a code of the application's own: Parley gives it no meaning"
    return f"unknown code {code}; `parley errors` shows all"


def _show(out: Output, explanation: Explanation) -> None:
    out.say(f"{explanation.kind} code {explanation.code}  {explanation.name}")
    out.say(f"  means       {explanation.meaning}")
    out.say(f"  comes from  {explanation.raised_by}")
    out.say(f"  what to do  {explanation.mend}")


def _table(title: str, explanations: list[Explanation]) -> Table:
    head = ("code", "name", "meaning", "comes from", "what to do")
    table = Table(*head, title=title, title_justify="left", box=box.SIMPLE_HEAD)
    # A name that is cut off could not be asked for: the longest word of one has room.
    table.columns[1].min_width = max(len(word) for e in explanations for word in e.name.split())
    for e in explanations:
        table.add_row(str(e.code), e.name, e.meaning, e.raised_by, e.mend)
    return table


def _described(explanation: Explanation) -> dict[str, object]:
    return {
        "kind": explanation.kind,
        "code": explanation.code,
        "name": explanation.name,
        "meaning": explanation.meaning,
        "raised_by": explanation.raised_by,
        "what_to_do": explanation.mend,
    }


def names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[tuple[str, str]]:
    """Complete the name of a code."""
    return [(name, "") for each in EXPLANATIONS for name in each.name.split(" / ")]
