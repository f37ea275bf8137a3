"""The protocol's numbered rules, and the vectors and tests that cite them."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.handshake import catalogue
from tests.interop import test_violations
from tests.interop.test_requests import CALLS_REFUSED, NOT_ANSWERED
from tests.interop.test_streams import STEPS
from tests.vectors.build import FILES, HERE

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
DOCUMENTS: Final = (DOCS / "protocol.md", *sorted((DOCS / "protocol").glob("*.md")))
CITED: Final[dict[str, dict[str, str]]] = tomllib.loads((HERE / "rules.toml").read_text("utf-8"))
README: Final = (HERE / "README.md").read_text("utf-8")
# Files whose vectors are cited by their names.
BY_NAME: Final = ("rules.json", "batch.json")
_RULE: Final = re.compile(r"\*\*((?:\d+|[A-E])\.\d+)\*\*")


def expand(rules: str) -> Iterator[str]:
    """Yield the rules of a list such as `8.1-8.3, 9.2`."""
    for part in filter(None, rules.split(", ")):
        first, _, last = part.partition("-")
        section, _, number = first.rpartition(".")
        last_section, _, end = (last or first).rpartition(".")
        assert section == last_section, part
        assert int(number) <= int(end), part
        yield from (f"{section}.{n}" for n in range(int(number), int(end) + 1))


def rules() -> list[str]:
    """All rules of the documents, in their order."""
    return [rule for path in DOCUMENTS for rule in _RULE.findall(path.read_text("utf-8"))]


def of_tables() -> Iterator[str]:
    """The rules that tables of cases cite."""
    for fault in catalogue.every_fault():
        yield from expand(fault.rules)
    for table in test_violations.TABLES:
        for _, _, cited in table.values():
            yield from expand(cited)
    for case in (*CALLS_REFUSED, *NOT_ANSWERED, *STEPS):
        yield from expand(case.partition(": ")[0])


def test_rules_are_numbered_without_gaps() -> None:
    found = [rule.split(".") for rule in rules()]
    for section in {section for section, _ in found}:
        numbers = sorted(int(number) for own, number in found if own == section)
        assert numbers == list(range(1, len(numbers) + 1)), section


def test_every_rule_that_a_document_cites_exists() -> None:
    known = set(rules())
    for path in (*DOCUMENTS, HERE / "README.md"):
        text = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL)
        for cited in re.findall(r"\b[Rr]ules? ((?:\d+|[A-E])\.\d+)", text):
            assert cited in known, (path.name, cited)


def test_every_cited_rule_exists_and_every_rule_is_cited_or_has_a_reason() -> None:
    known = rules()
    cited = set(of_tables())
    for name, groups in CITED.items():
        if name != "unchecked":
            cited |= {rule for listed in groups.values() for rule in expand(listed)}
    reasons = [rule for listed in CITED["unchecked"].values() for rule in expand(listed)]
    assert sorted(cited - set(known)) == []
    assert sorted(cited & set(reasons)) == [], "checked, in spite of a reason why not"
    assert [rule for rule in known if rule not in cited and rule not in reasons] == []
    assert set(reasons) <= set(known)
    assert len(set(reasons)) == len(reasons)


def test_every_vector_cites_a_rule() -> None:
    for name in FILES:
        if name in ("recorded.json", "journal.json"):
            continue
        content: dict[str, Any] = json.loads((HERE / name).read_text("utf-8"))
        wanted = {
            vector["name"]
            if name == "rules.json" or vector.get("kind") == "rule"
            else vector.get("kind", "")
            for vector in content["vectors"]
        }
        assert set(CITED[name]) == wanted, name


def test_every_cited_file_exists() -> None:
    for name in CITED:
        assert name in ("tests", "unchecked") or (HERE / name).exists()
    for path in CITED["tests"]:
        assert (ROOT / path).exists(), path
