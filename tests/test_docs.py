"""The documents: their programs run, their links lead somewhere, their tables are the code's."""

import re
import runpy
import tomllib
from collections.abc import Iterator
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer

from parley._crypto.auditor import AuditorPrivateKey
from parley._crypto.identity import Identity
from parley._node.bus.config import RANGES as BUS_RANGES
from parley._node.bus.config import BusConfig
from parley._node.cli.main import app
from parley._node.config import RANGES, NodeConfig
from parley._node.dialects.limits import RANGES as DIALECT_RANGES
from parley._node.dialects.limits import NamedLimits, RelayLimits, SimProtoLimits
from parley._node.federation.limits import MOST_LINKS
from parley._node.protocol import limits
from parley._node.protocol.allowance import Rate
from parley._node.protocol.codes import CloseCode, code_name
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.federation_types import LONGEST_EXPORT, MOST_EXPORTS, MOST_SERVERS
from parley._node.settings import (
    BusSettings,
    FederationSettings,
    NamedSettings,
    RelaySettings,
    Settings,
    SimProtoSettings,
    load_settings,
)
from parley._node.settings.federation import ACCOUNT_RULES, MOST_ACCOUNTS, MOST_PLACES
from parley._node.settings.journal import FSYNC, JOURNAL_RANGES, ON_FAILURE, JournalSettings
from parley._node.settings.serve import CLOCK_INTERVALS, ServeSettings
from parley._node.settings.sources import variables

ROOT = Path(__file__).parent.parent
HOWTOS = sorted((ROOT / "docs" / "howto").glob("*.md"))
# What has programs that run.
WITH_PROGRAMS = [ROOT / "README.md", ROOT / "docs" / "bus.md", *HOWTOS]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
DOCUMENTS.append(ROOT / "tests" / "README.md")

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


def rows(document: str, heading: str) -> list[list[str]]:
    """The body of the first table under a heading, without the marks of code."""
    text = (ROOT / document).read_text()
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in lines[2:]]


@pytest.mark.parametrize("document", WITH_PROGRAMS, ids=name_of)
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_programs_run(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each Python block; blank lines before it keep the line numbers of the document."""
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


def test_links_of_the_pages_that_are_read_in_git_lead_somewhere() -> None:
    """The step `site` follows the links of all pages, and their anchors."""
    broken = []
    for document in (*ROOT.glob("*.md"), *ROOT.glob("*/*.md"), *ROOT.glob("*/*/README.md")):
        for link in _LINK.findall(document.read_text()):
            target = (document.parent / link.partition("#")[0]).resolve()
            in_docs = document.is_relative_to(ROOT / "docs")
            is_generated = in_docs and target.is_relative_to(ROOT / "docs" / "reference")
            if "://" not in link and not is_generated and not target.exists():
                broken.append((name_of(document), link))
    assert broken == []


def test_the_close_codes_of_the_protocol() -> None:
    table = rows("docs/protocol.md", "11. Closing and errors")
    assert {row[1]: int(row[0]) for row in table if row[0].isdigit()} == {
        code_name(code): code.value for code in CloseCode if code >= 0
    }
    (never_sent,) = (row[1] for row in table if row[0] == "never sent")
    local = {code_name(code) for code in CloseCode if code < 0}
    assert {name.strip(" `") for name in never_sent.split(",")} == local


def number(text: str) -> float:
    """A value as the tables write it: digits in threes, perhaps with a unit."""
    return float(text.removesuffix(" s").replace(",", ""))


def limit(text: str) -> float | Rate:
    """The same, or a rate: '64, then 1 a second', '32, then 1 in 2 s'."""
    burst, then, steady = text.partition(", then ")
    if not then:
        return number(text)
    count, _, seconds = steady.replace(" a second", " in 1 s").partition(" in ")
    return Rate(number(burst), number(seconds) / number(count))


def test_the_settings_of_a_node() -> None:
    table = {row[0]: row for row in rows("docs/reference/settings.md", "NodeConfig")}
    assert list(table) == [field.name for field in fields(NodeConfig)]
    usual = NodeConfig()
    for name, row in table.items():
        value = getattr(usual, name)
        if isinstance(value, bool):
            assert row[2] == str(value).lower(), name
        elif isinstance(value, int | float):
            assert number(row[2]) == value, name
            assert row[1] == str(RANGES[name]), name


def test_the_settings_of_a_core() -> None:
    table = {row[0]: row for row in rows("docs/reference/settings.md", "CoreConfig")}
    shared = {field.name for field in fields(NodeConfig)} | {"node_info"}
    assert list(table) == [f.name for f in fields(CoreConfig) if f.init and f.name not in shared]
    usual = CoreConfig(identity=Identity.create())
    for name, row in table.items():
        if name != "identity":
            assert number(row[2]) == getattr(usual, name), name


def test_the_settings_of_serve() -> None:
    table = {row[0]: row for row in rows("docs/reference/settings.md", "ServeSettings")}
    assert list(table) == [field.name for field in fields(ServeSettings)]
    usual = ServeSettings()
    assert table["listen"][2] == ",".join(usual.listen)
    assert table["trust"][2] == usual.trust
    assert number(table["clock_interval"][2]) == usual.clock_interval
    assert (table["forward"][2], usual.forward) == ("none", ())
    assert table["clock_interval"][1] == str(CLOCK_INTERVALS)


def test_the_settings_of_a_journal() -> None:
    table = {row[0]: row for row in rows("docs/reference/settings.md", "JournalSettings")}
    assert list(table) == [field.name for field in fields(JournalSettings)]
    usual = JournalSettings()
    for name, allowed in JOURNAL_RANGES.items():
        assert table[name][1].removeprefix("bytes, ") == str(allowed), name
        assert number(table[name][2]) == getattr(usual, name), name
    for name, words in (("fsync", FSYNC), ("on_failure", ON_FAILURE)):
        assert table[name][1].replace("`", "") == ", ".join(words)
        assert table[name][2] == getattr(usual, name)


def test_the_settings_of_a_bus() -> None:
    table = rows("docs/reference/settings.md", "BusSettings")
    assert [(row[0], row[2]) for row in table] == [("url", "none"), ("allow", "none")]
    assert [field.name for field in fields(BusSettings)] == ["url", "allow"]
    assert BusSettings() == BusSettings(url=None, allow=())


def test_the_settings_of_a_server() -> None:
    table = {row[0]: row for row in rows("docs/reference/settings.md", "FederationSettings")}
    assert list(table) == [field.name for field in fields(FederationSettings)]
    usual = FederationSettings()
    for name, row in table.items():
        assert (row[2].replace("none", "") or ()) == getattr(usual, name), name
    for name, most in (
        ("links", (MOST_LINKS, MOST_PLACES)),
        ("members", (MOST_SERVERS - 1,)),
        ("exports", (MOST_EXPORTS, LONGEST_EXPORT)),
        ("accounts", (MOST_ACCOUNTS,)),
    ):
        said = [number(word) for word in re.findall(r"[\d,]*\d", "".join(table[name][1:4:2]))]
        assert set(most) <= set(said), name
    assert table["accounts"][1].replace("`", "").startswith(", ".join(ACCOUNT_RULES))


def test_the_settings_of_the_bus_itself() -> None:
    table = {row[0]: row for row in rows("docs/bus.md", "Settings")}
    assert list(table) == [field.name for field in fields(BusConfig)]
    for name, allowed in BUS_RANGES.items():
        value = getattr(BusConfig(), name)
        assert table[name][1] == str(allowed), name
        assert (None if table[name][2] == "none" else number(table[name][2])) == value, name


def test_the_limits_of_the_bus() -> None:
    table = rows("docs/bus.md", "Limits")
    assert table
    assert len({row[0] for row in table}) == len(table)
    for limit, value, _ in table:
        module, _, name = limit.rpartition(".")
        assert number(value) == getattr(import_module(f"parley._{module}"), name), limit


def test_every_setting_has_its_variable() -> None:
    table = rows("docs/reference/settings.md", "A TOML file and the environment")
    assert {row[0]: row[1] for row in table} == variables()
    for path, _, kind, default in table:
        parts = path.split(".")
        usual: object = Settings()
        for part in parts if default not in ("none", "all") else []:
            usual = getattr(usual, part)
        if kind in ("count", "number"):
            assert number(default) == usual, path


def test_the_example_is_complete_and_has_the_defaults(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "reference" / "settings.md").read_text()
    (example,) = re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    file = tmp_path / "parley.toml"
    file.write_text(example)
    found, identity = (
        load_settings(file, {}),
        Identity.create(("ed25519", "ml-dsa-65", "ecdsa-p256")),
    )
    assert replace(found, node=NodeConfig()) == Settings()
    assert found.node.core(identity) == NodeConfig().core(identity)
    assert replace(found.node, algorithms={}) == NodeConfig()
    # With what is commented out it names everything there is, and still loads.
    key = tmp_path / "network.key"
    key.write_bytes(bytes(range(32)))
    key.chmod(0o600)
    example = re.sub(r"^# (\w+ = )", r"\1", example, flags=re.MULTILINE)
    example = example.replace("NODEID", str(identity.node_id))
    example = example.replace("AUDITOR", AuditorPrivateKey.create().public.text)
    file.write_text(example.replace("/etc/parley/network.key", str(key)))
    assert load_settings(file, {}).node.network_key == bytes(range(32))
    tables = tomllib.loads(example)
    assert set(settings_in(tables)) == set(variables())


def settings_in(table: dict[str, Any], above: str = "") -> Iterator[str]:
    """The paths of a file's settings; `info` is one, though a table."""
    for name, value in table.items():
        path = f"{above}{name}"
        if isinstance(value, dict) and path != "node.info":
            yield from settings_in(value, f"{path}.")
        else:
            yield path


@pytest.mark.parametrize("limits", [SimProtoLimits, NamedLimits, RelayLimits])
def test_the_limits_of_the_dialects(limits: type[Any]) -> None:
    table = rows("docs/reference/settings.md", limits.__name__)
    assert [row[0] for row in table] == [field.name for field in fields(limits)]
    for name, allowed, usual, *_ in table:
        least, _, greatest = allowed.partition("..")
        assert (number(least), number(greatest)) == DIALECT_RANGES[name], name
        assert number(usual) == getattr(limits(), name), name


def test_the_settings_of_the_dialects() -> None:
    table = rows("docs/reference/settings.md", "The other dialects")
    every: dict[str, Any] = {
        "simproto": SimProtoSettings(),
        "named": NamedSettings(),
        "relay": RelaySettings(),
    }
    for name, settings in every.items():
        own = {row[0]: row[3] for row in table if row[1] == "all" or name in row[1]}
        assert own.keys() == {field.name for field in fields(settings)}
        for setting, usual in own.items():
            value = getattr(settings, setting)
            if isinstance(value, str | bool):
                assert usual == str(value).lower(), setting


def test_the_negotiated_limits() -> None:
    table = rows("docs/reference/settings.md", "Limits")
    assert {row[0]: (row[2], number(row[3])) for row in table} == {
        name: (f"{limit.minimum:,}..{limit.maximum:,}", limit.default)
        for name, limit in limits.NEGOTIATED.items()
    }


def test_the_fixed_limits() -> None:
    table = {row[0]: limit(row[1]) for row in rows("docs/reference/settings.md", "Fixed limits")}
    ours = {name: value for name, value in vars(limits).items() if name.isupper()}
    numbers = {name: value for name, value in ours.items() if isinstance(value, int | float)}
    assert table == numbers | {name: rate for name, rate in ours.items() if type(rate) is Rate}


def options(command: Any) -> Iterator[str]:
    """The long names of a command's options and those of the commands below it."""
    for parameter in command.params:
        yield from (name for name in parameter.opts if name.startswith("--"))
    for below in getattr(command, "commands", {}).values():
        yield from options(below)


def misspelt(line: str) -> str | None:
    """The first word of a command line behind `parley` that no command has, or option that the
    command has not."""
    command, arguments = typer.main.get_command(app), False
    for word in line.split():
        below = {} if arguments else getattr(command, "commands", {})
        option = re.match(r"--[a-z][a-z-]+", word)
        if word in below:
            command = below[word]
        elif option is not None:
            known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
            if option.group() not in known | {"--help", "--version"}:
                return word
        elif below and re.fullmatch(r"[a-z]+", word):
            return word
        else:
            arguments = True
    return None


def test_every_command_in_the_documents_is_one() -> None:
    for path in DOCUMENTS:
        text = path.read_text("utf-8").replace("\\\n", " ")
        lines = re.findall(r"`(?:uv run (?:--\S+ \S+ )?)?parley ([a-z][^`|#;&]*)`", text)
        lines += re.findall(
            r"^ *(?:\w*\$ )?(?:uv run (?:--\S+ \S+ )?)?parley ([a-z][^|#;&\n]*)", text, re.M
        )
        assert (path, [line for line in lines if misspelt(line)]) == (path, [])


def test_every_option_of_every_command_is_described() -> None:
    text = (ROOT / "docs" / "reference" / "commands.md").read_text()
    found = set(options(typer.main.get_command(app))) - {"--help"}
    assert "--passphrase-file" in found
    assert sorted(name for name in found if not re.search(rf"{name}\b", text)) == []
