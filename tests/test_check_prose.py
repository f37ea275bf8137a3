"""Each rule of `.ci/check_prose.py` finds the habit it is for, and accepts the plain form."""

import runpy
from pathlib import Path

import pytest

CHECK = runpy.run_path(str(Path(__file__).parents[1] / ".ci" / "check_prose.py"))

PAIRS = {
    "unnamed-actor": ("Whoever dials proves its key.", "The dialling node proves its key."),
    "unnamed-thing": ("What is queued is flushed.", "Queued events are flushed."),
    "living-program": ("It lives as long as its block.", "It runs while its block is active."),
    "chained-pronoun": ("A backend of its own.", "Its own backend."),
    "dated-phrase": ("The session goes on.", "The session continues."),
    "speaking-thing": ("The file says why.", "The file gives the reason."),
    "metaphor": ("How strangers are rationed.", "How unknown peers are rate-limited."),
    "negated-noun": ("Nobody may call it.", "Calls are denied by default."),
    "word-order": ("The others are closed, too.", "The others are also closed."),
}


@pytest.mark.parametrize("rule", CHECK["RULES"])
def test_a_rule_finds_the_habit_and_not_the_plain_form(rule: str) -> None:
    habit, plain = PAIRS[rule]
    pattern = CHECK["_COMPILED"][rule]
    assert pattern.search(habit)
    assert not pattern.search(plain)


def test_the_text_of_a_python_file_is_sorted_by_kind(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        '"""About the module."""\n# Why it is so.\nx = f"a text {1} of words"\ny = "short"\n'
    )
    assert sorted(CHECK["_python"](file)) == [
        ("comments", 2, "# Why it is so."),
        ("docstrings", 1, "About the module."),
        ("strings", 3, "a text {} of words"),
    ]
