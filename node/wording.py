"""Text of others in our logs and on our screens.

One rule: what another node says never begins a line or steers a terminal.
"""


def one_line(text: str) -> str:
    """The text with its line ends and other control characters escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
