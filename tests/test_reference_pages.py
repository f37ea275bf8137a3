"""The reference pages: the API pages name every public object, and generated pages are complete."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import parley.errors
from docs import commands_page, errors_page, log_events, settings_page
from parley._node.cli.error_catalogue import EXPLANATIONS
from parley._node.settings import Settings, load_settings
from parley._node.settings.catalogue import REMOVED, SETTINGS
from tests.api_pages import HIDDEN, PAGES, find


def public() -> dict[str, set[str]]:
    """The public modules, and what each of them has."""
    files = Path(parley.__file__).parent.glob("[a-z]*.py")
    names = [f"parley.{file.stem}" for file in files]
    return {name: set(import_module(name).__all__) for name in ["parley", *names]}


def test_all_that_is_public_is_on_a_page_and_nothing_else() -> None:
    names = {f"{module}.{name}" for module, names in public().items() for name in names}
    # The errors that `parley` itself has too are described with the others.
    twice = {name for name in names if name.replace("parley.", "parley.errors.") in names}
    assert names - twice == HIDDEN.keys()


def test_every_error_of_a_part_is_public() -> None:
    for part in ("_node", "_node.bus", "_node.journal", "_pipeline"):
        module = import_module(f"parley.{part}.errors")
        own = {
            name
            for name, value in vars(module).items()
            if inspect.isclass(value)
            and issubclass(value, Exception)
            and value.__module__ == module.__name__
            and not name.startswith("_")
        }
        assert own
        assert own - set(parley.errors.__all__) == set()


def test_each_name_is_on_one_page() -> None:
    directives = sum(page.read_text().count("\n::: ") for page in PAGES)
    assert directives == len(HIDDEN)


def test_hidden_members_exist() -> None:
    absent = [
        f"{name}.{member}"
        for name, hidden in HIDDEN.items()
        for member in hidden
        if not hasattr(find(name), member)
    ]
    assert absent == []


def test_every_public_member_has_a_docstring() -> None:
    silent = [
        f"{name}.{member}"
        for name in HIDDEN
        if inspect.isclass(found := find(name))
        for member, value in vars(found).items()
        if not member.startswith("_")
        and (inspect.isfunction(value) or isinstance(value, property))
        and not value.__doc__
    ]
    assert silent == []


def test_the_page_of_log_events_is_complete() -> None:
    """`build` raises if an event has no entry; each row has a logger and a level."""
    rows = [row.split(" | ") for row in log_events.build().splitlines() if row.startswith("| `")]
    assert len(rows) > 90
    assert [row[0] for row in rows if not row[1] or not row[2]] == []
    by_name = {row[0].strip("| `"): row[1:] for row in rows}
    assert by_name["web.full"][0] == "`parley.web`"
    assert by_name["connection.closed"][1] == "info, warning"
    assert by_name["answer.unsent"][:3] == [
        "`parley.gateway`, `parley.peer`",
        "error, warning",
        "`topic`",
    ]


def test_the_page_of_errors_has_each_error_and_each_code() -> None:
    text = errors_page.build()
    errors = re.findall(r"^ *- \[(\w+)\]", text, re.MULTILINE)
    public = vars(parley.errors)
    assert sorted(errors) == [
        name for name in parley.errors.__all__ if inspect.isclass(public[name])
    ]
    assert (
        "\n    - [AddressError](api/errors.md#parley.errors.AddressError) (`ValueError`): " in text
    )
    codes = re.findall(r"^\| (-?\d+) \| `([\w-]+)", text, re.MULTILINE)
    assert codes == [(str(each.code), each.name.split(" / ")[0]) for each in EXPLANATIONS]


def test_the_page_of_commands_has_each_command_and_its_options() -> None:
    text = commands_page.build()
    for line in (
        "| `parley bus dlq list BUS NAME` | List the dead letters of an event",
        "| `call` | `--timeout NUMBER` | Seconds to wait for the response. [default: 30.0] |",
        "| `--kex TEXT` |",
    ):
        assert line in text
    assert "demo-responder" not in text  # hidden


def test_the_page_of_settings_is_complete(tmp_path: Path) -> None:
    text = settings_page.build()
    sections = re.findall(r"^## ([a-z.]+)\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)
    assert {
        f"{table}.{name}"
        for table, section in sections
        for name in re.findall(r"^\| `([\w.]+)` ", section, re.MULTILINE)
    } == SETTINGS.keys()
    # The example has the defaults.
    (example,) = re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    file = tmp_path / "parley.toml"
    file.write_text(example)
    assert load_settings(file, {}) == Settings()
    assert all(f"`{name}`" in text for name in REMOVED)
