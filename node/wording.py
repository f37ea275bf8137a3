"""Text of others in our logs and on our screens, and a sentence that several places say.

One rule: what another node says never begins a line or steers a terminal.
"""


def one_line(text: str) -> str:
    """The text with its line ends and other control characters escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def needs_extra(what: str, extra: str) -> str:
    """The sentence for what is not installed. No index has the package: its name is not enough."""
    return (
        f"{what} needs Parley's extra {extra!r}: in a clone `uv run --extra {extra}`, "
        f"elsewhere `pip install 'WHEEL[{extra}]'` with the path of Parley's wheel"
    )
