"""The line that a person types, kept apart from what is printed meanwhile.

One rule: pure: keys in, lines and a picture out. Lines of a terminal come to a program
only when they are done, so that nothing could be printed above one that is begun;
this editor therefore gets each key, and draws the line itself.
"""

import codecs
from typing import Final

from rich.cells import cell_len, get_character_cell_size

LONGEST: Final = 4_096  # characters

_CLEAR: Final = "\r\x1b[K"  # to the line's beginning; erase it (ECMA-48, EL)
_ENTER: Final = "\r\n"
_ERASE: Final = "\x7f\x08"
_END: Final = "\x04"  # Ctrl-D
_KILL_LINE: Final = "\x15"  # Ctrl-U
_KILL_WORD: Final = "\x17"  # Ctrl-W
_ESCAPE: Final = "\x1b"


class LineEditor:
    """The line being typed behind `prompt`. `closed` once the input is at its end."""

    def __init__(self, prompt: str) -> None:
        self.prompt = prompt
        self.text = ""
        self.closed = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._sequence = ""  # of an arrow key and its like: taken in, and passed over

    def feed(self, keys: bytes) -> list[str]:
        """Take what was typed; returns the lines that were completed by it."""
        lines: list[str] = []
        for key in self._decoder.decode(keys):
            if self.closed:
                break
            if self._sequence or key == _ESCAPE:
                self._skip(key)
            elif key in _ENTER:
                lines.append(self.text)
                self.text = ""
            elif key == _END:
                self.closed = not self.text
            else:
                self._edit(key)
        return lines

    def view(self, columns: int) -> str:
        """What draws the line: as much of its end as fits into `columns`."""
        room = columns - cell_len(self.prompt) - 1
        shown = len(self.text)
        while shown and room >= get_character_cell_size(self.text[shown - 1]):
            room -= get_character_cell_size(self.text[shown - 1])
            shown -= 1
        return f"{_CLEAR}{self.prompt}{self.text[shown:]}"

    def above(self, line: str, columns: int) -> str:
        """What prints `line` in the place of the one being typed, and draws that below."""
        return f"{_CLEAR}{line}\r\n{self.view(columns)}"

    def _edit(self, key: str) -> None:
        if key in _ERASE:
            self.text = self.text[:-1]
        elif key == _KILL_LINE:
            self.text = ""
        elif key == _KILL_WORD:
            kept = self.text.rstrip()
            self.text = kept[: kept.rfind(" ") + 1]
        elif key.isprintable() and len(self.text) < LONGEST:
            self.text += key

    def _skip(self, key: str) -> None:
        """Escape, then [ or O, then up to a letter or ~; or Escape and one key."""
        self._sequence += key
        size, introduced = len(self._sequence), self._sequence[1:2] in ("[", "O")
        if (size > 2 and "@" <= key <= "~") or (size > 1 and not introduced):
            self._sequence = ""
