"""Follow the guides about keys to the letter, as `tests.test_tutorial` follows the tutorial.

Each terminal of these pages is a machine with its own home directory; all share one directory of
files. Words and times are those of the run.
"""

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.test_tutorial import Command, Reader

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(240)]

GUIDES = Path(__file__).parents[1] / "docs" / "guides"
# What a page assumes: the files and names of an earlier page.
BEFORE = {
    "stolen-key": """\
```console title="bob"
$ parley id new bob.key --recovery bob.recovery
...
node ID     llh7a3ptjnlspyes5paznovuzs5gbestis6dkqy3v4bkax65lroa
...
```

```console title="alice"
$ parley peers add llh7a3ptjnlspyes5paznovuzs5gbestis6dkqy3v4bkax65lroa bob
...
```
""",
}

_TITLED = re.compile(r'^```\w+ title="[^"]+"\n.*?^```$', re.MULTILINE | re.DOTALL)
_TIME = re.compile(r"\b20\d\d-\d\d-\d\dT[\d:.]+Z")
_UUID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_ANSWER = re.compile(r"\[yes/no\] (\w+)$")


class GuideReader(Reader):
    """Follows the titled blocks of a guide."""

    def run_blocks(self, text: str) -> None:
        """Run the titled blocks of a page, and end the programs that run until they are ended."""
        super().run_blocks("\n".join(_TITLED.findall(text)))
        for command in self.running.values():
            if command.line.startswith(("parley serve", "python")):
                command.interrupt()

    def start(self, terminal: str, line: str) -> Command:
        """Start a command on a machine."""
        home = self.directory / terminal
        self.actual[f"/home/{terminal}/.config/parley"] = str(home)
        return Command(line, self.directory, home, is_answered="peers apply" in line)

    def read(self, expected: str, command: Command) -> None:
        """Read a line, and answer the question in it."""
        if (answer := _ANSWER.search(expected)) is not None:
            command.answer(answer[1])
        if expected.startswith("words "):
            expected = re.sub(r"(?<=^words)( +).*", r"\1...", expected)
        expected = _UUID.sub("...", _TIME.sub("...", expected))
        super().read(expected, command)


@pytest.mark.parametrize(
    "page", ["prepare-for-key-loss", "lost-key", "stolen-key", "rotate-a-server-key"]
)
def test_a_guide_works_as_its_page_shows(page: str, tmp_path: Path) -> None:
    text = (GUIDES / f"{page}.md").read_text()
    with ExitStack() as terminals:
        GuideReader(tmp_path, terminals).follow(BEFORE.get(page, "") + text)
