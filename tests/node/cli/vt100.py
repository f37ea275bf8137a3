"""A terminal's screen, as far as a line editor and a log need one."""

import re
from collections.abc import Callable

_PIECES = re.compile(r"\x1b\[\??([0-9;]*)([A-Za-z])|\x1b[()=>].?|([\x00-\x1f])|([^\x00-\x1f]+)")


class Display:
    """The lines that a person would see; those that scroll out are kept above them."""

    def __init__(self, columns: int) -> None:
        self.lines = [""]
        self._columns = columns
        self._row = self._column = 0

    def feed(self, text: str) -> None:
        """Show what a program printed, in whole sequences."""
        for number, command, control, shown in _PIECES.findall(text):
            if command:
                self._steer(command, int(number or 0) if number.isdigit() or not number else 0)
            elif control == "\r":
                self._column = 0
            elif control == "\n":
                self._row += 1
                self._line(str)
            elif control == "\b":
                self._column -= 1
            for character in shown:
                self._put(character)

    def _steer(self, command: str, number: int) -> None:
        steps = max(1, number)
        if command == "A":
            self._row = max(0, self._row - steps)
        elif command == "C":
            self._column += steps
        elif command == "D":
            self._column = max(0, self._column - steps)
        elif command in "JK":
            assert number == 0, "only to the end"
            self._line(lambda line: line[: self._column])
            if command == "J":
                del self.lines[self._row + 1 :]

    def _put(self, character: str) -> None:
        if self._column == self._columns:
            self._row, self._column = self._row + 1, 0
        at = self._column
        self._line(lambda line: f"{line[:at]:{at}}{character}{line[at + 1 :]}")
        self._column += 1

    def _line(self, change: Callable[[str], str]) -> None:
        self.lines += [""] * (self._row + 1 - len(self.lines))
        self.lines[self._row] = change(self.lines[self._row])
