"""The documents: programs run, links work, and tables agree with the code."""

import ast
import re
import runpy
import tomllib
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

from parley._crypto.identity import Identity
from parley._node.cli.commands.root import PARLEY
from parley._node.config import NodeConfig, Tuning
from parley._node.protocol import limits
from parley._node.protocol.codes import CloseCode, code_name
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.rate_limit import Rate

ROOT = Path(__file__).parent.parent
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
# Pages without programs.
TEXT_ONLY = {"README", "faq", "pipeline-cluster", "run-a-server", "troubleshooting"}
# Their programs have titles, and are run by test_key_guides.py.
TEXT_ONLY |= {"lost-key", "prepare-for-key-loss", "rotate-a-server-key"}
WITH_PROGRAMS = [ROOT / "README.md", ROOT / "docs" / "bus.md"]
WITH_PROGRAMS += [page for page in GUIDES if page.stem not in TEXT_ONLY]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
DOCUMENTS.append(ROOT / "tests" / "README.md")

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


def rows(document: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table under a heading, without backquotes."""
    text = (ROOT / document).read_text()
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in lines[2:]]


@pytest.mark.parametrize("document", WITH_PROGRAMS, ids=name_of)
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_programs_run(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each Python block, with the line numbers that it has in the document."""
    text = document.read_text()
    blocks = list(_BLOCK.finditer(text))
    assert blocks
    for block in blocks:
        line = text.count("\n", 0, block.start(1))
        directory = tmp_path / str(line + 1)
        directory.mkdir()
        with monkeypatch.context() as patch:
            patch.chdir(directory)
            patch.setenv("PARLEY_HOME", str(directory / "home"))
            file = directory / f"{document.stem}.py"
            file.write_text("\n" * line + block[1])
            runpy.run_path(str(file), run_name="__main__")


def test_links_in_repository_pages_work() -> None:
    """The step `site` of .ci/run checks the links of all pages, with anchors."""
    broken = []
    for document in (*ROOT.glob("*.md"), *ROOT.glob("*/*.md"), *ROOT.glob("*/*/README.md")):
        for link in _LINK.findall(document.read_text()):
            target = (document.parent / link.partition("#")[0]).resolve()
            in_docs = document.is_relative_to(ROOT / "docs")
            is_generated = in_docs and target.is_relative_to(ROOT / "docs" / "reference")
            if "://" not in link and not is_generated and not target.exists():
                broken.append((name_of(document), link))
    assert broken == []


def test_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"])
    assert {name for name, _ in rows("docs/install.md", "Extras")} == extras
    # Every such command line uses the command line program.
    for document in DOCUMENTS:
        for found in re.findall(r"\.whl(?:\)\[|\[|\s|')([\w,]*)", document.read_text()):
            names = set(found.split(","))
            assert "cli" in names, document
            assert names <= extras, document


def test_the_close_codes_of_the_protocol() -> None:
    table = rows("docs/protocol.md", "11. Closing and errors")
    assert {row[1]: int(row[0]) for row in table if row[0].isdigit()} == {
        code_name(code): code.value for code in CloseCode if code >= 0
    }
    (never_sent,) = (row[1] for row in table if row[0] == "never sent")
    local = {code_name(code) for code in CloseCode if code < 0}
    assert {name.strip(" `") for name in never_sent.split(",")} == local


def number(text: str) -> float:
    """Read a number of a table: groups of three digits, perhaps a unit."""
    return float(text.removesuffix(" s").replace(",", ""))


def limit(text: str) -> float | Rate:
    """Read a number, or a rate such as '64, then 1 a second' or '32, then 1 in 2 s'."""
    burst, then, steady = text.partition(", then ")
    if not then:
        return number(text)
    count, _, seconds = steady.replace(" a second", " in 1 s").partition(" in ")
    return Rate(number(burst), number(seconds) / number(count))


def test_the_settings_of_a_core() -> None:
    table = {row[0]: row for row in rows("docs/reference/limits.md", "CoreConfig")}
    shared = {field.name for made in (NodeConfig, Tuning) for field in fields(made)}
    shared |= {"node_info", "statements"}
    assert list(table) == [f.name for f in fields(CoreConfig) if f.init and f.name not in shared]
    usual = CoreConfig(identity=Identity.create())
    for name, row in table.items():
        if name != "identity":
            assert number(row[2]) == getattr(usual, name), name


def test_the_limits_of_the_bus() -> None:
    table = rows("docs/bus.md", "Limits")
    assert table
    assert len({row[0] for row in table}) == len(table)
    for limit, value, _ in table:
        module, _, name = limit.rpartition(".")
        assert number(value) == getattr(import_module(f"parley._{module}"), name), limit


def test_the_fixed_limits() -> None:
    table = {row[0]: limit(row[1]) for row in rows("docs/reference/limits.md", "Fixed limits")}
    constants = {name: value for name, value in vars(limits).items() if name.isupper()}
    numbers = {name: value for name, value in constants.items() if isinstance(value, int | float)}
    assert table == numbers | {name: rate for name, rate in constants.items() if type(rate) is Rate}


def misspelt(line: str) -> str | None:
    """Return the first word after `parley` that isn't a command or option, if there is one."""
    command, arguments = PARLEY, False
    for word in line.split():
        below = {} if arguments else getattr(command, "commands", {})
        option = re.match(r"--[a-z][a-z-]+", word)
        if word in below:
            command = below[word]
        elif option is not None:
            known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
            if option.group() not in known | {"--help", "--help-all", "--version"}:
                return word
        elif below and re.fullmatch(r"[a-z]+", word):
            return word
        else:
            arguments = True
    return None


def test_documented_commands_exist() -> None:
    for path in DOCUMENTS:
        text = path.read_text("utf-8").replace("\\\n", " ")
        lines = re.findall(r"`(?:uv run (?:--\S+ \S+ )?)?parley ([a-z][^`|#;&]*)`", text)
        lines += re.findall(
            r"^ *(?:\w*\$ )?(?:uv run (?:--\S+ \S+ )?)?parley ([a-z][^|#;&\n]*)", text, re.M
        )
        assert (path, [line for line in lines if misspelt(line)]) == (path, [])


def test_quoted_messages_exist() -> None:
    """Troubleshooting quotes messages with values in capitals; the texts between are the code's."""
    page = (ROOT / "docs" / "guides" / "troubleshooting.md").read_text()
    sources = [*(ROOT / "node").rglob("*.py"), *(ROOT / "crypto").rglob("*.py")]
    literals = [
        part.value
        for source in sources
        for part in ast.walk(ast.parse(source.read_text()))
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]
    missing = []
    for message in re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        for text in re.split(r" from [A-Z]+|[A-Z]{4,}\b|'[A-Za-z]+'|\([^)]*\)|\n", message):
            fragment = text.strip(" :?'")
            if len(fragment) > 8 and not any(fragment in literal for literal in literals):
                missing.append(fragment)
    assert not missing, missing
