"""Check that what people read is plain English: documents, strings, docstrings and comments.

    python .ci/check_prose.py             a table of hits by rule and kind of text; exits with 1
                                          if a kind exceeds a limit
    python .ci/check_prose.py RULE [PATH] every hit of a rule, below a path

The rules find habits that make readers stop, such as "what is queued is flushed" in place of
"queued events are flushed". A single hit can be right ("nothing is lost"); a high rate is not.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("documents", "strings", "docstrings", "comments", "tests")
# Hits per 1,000 words that each kind of text may have.
LIMIT = 3.0
# Words of a sentence; sentences over it per 1,000 words; and mean words of a sentence in README.md
# and the guides.
LONG_SENTENCE, LONG_LIMIT, MEAN_LIMIT = 35, 0.5, 20.0

RULES = {
    # The client, the peer, the caller, the operator, the receiver.
    "unnamed-actor": r"\b[Ww]ho(?:ever|m|mever)\b"
    r"|(?:^|[.;:] )Who (?!are|is (?:it|this))[a-z]|\b(?:for|of|to|by|from|against|those) who\b",
    # The message, the setting, the traffic, the reason.
    "unnamed-thing": r"\b[Ww]hat (?:is|was|are|were|has|had|came|comes|stands|lies|waits|passes"
    r"|travels|goes|they|it|others|peers)\b",
    # Runs, is active, includes.
    "living-program": r"\blives? (?:as long|in|by|on)\b|\bas long as (?:its|the|it)\b"
    r"|while it lasts",
    # The peer's; its.
    "chained-pronoun": r"\bof (?:theirs|its own|yours|ours|your own|their own)\b"
    r"|\b(?:that|those) of\b",
    # Continue, re-, no longer, already, forever, be, in progress, alongside, forward, except, get.
    "dated-phrase": r"\b(?:go(?:es)?|going|gone|went) on\b|\banew\b|\b(?:no|any) more\b|\bby then\b"
    r"|\bfor ever\b|\bst(?:ands?|ood)\b(?! for)|\bunder way\b|\b[Bb]eside\b|\bhand(?:s|ed)? on\b"
    r"|\bbut for\b|\bmeets? (?:[A-Z]\w+Error|whatever|it|silence|all)\b",
    # Reports, returns, specifies, requires.
    "speaking-thing": r"\b(?:says?|tells?|told|telling)\b|\btakes? the \[?extra|\bit takes\b"
    r"|\bheld to\b|[Hh]as the \w+ \w+ (?:read|run|asked|told)",
    # Layer, interface, check, unknown peer, rate-limited, suspended, deceived.
    "metaphor": r"\b(?:house|floors?|seams?|doors?|ration(?:s|ed|ing)?|strangers?|fooled|parted"
    r"|in vain|poses?|lent)\b",
    # Negate the verb.
    "negated-noun": r"\b[Nn]obody\b|\b[Nn]othing\b|\bnone\b|\bnor\b",
    # Subject, verb, object.
    "word-order": r", too\b|\bmeanwhile\b|\bby (?:itself|themselves)\b"
    r"|\b(?:[;,]|and) so (?:do|does|is|are|has|have)\b"
    r"|(?:^|[.;] )(?:Asked|Told|Given|On it|Of \w+) (?:are|is)\b",
}
PACKAGES = ("lbm", "crypto", "node", "parley", "pipeline", "benchmarks", "examples", "docs")
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs", "tests", "deploy")
_COMPILED = {rule: re.compile(pattern, re.MULTILINE) for rule, pattern in RULES.items()}
_DEFINITIONS = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_SENTENCE_END = re.compile(r"(?<=[.!?])[)\"'*`]*\s+(?=[A-Z`\"'(\[*])")

Text = tuple[str, Path, int, str]


def main(arguments: list[str]) -> int:
    """Print the table, or the hits of one rule."""
    if arguments:
        rule, below = arguments[0], "".join(arguments[1:])
        for _, path, line, text in texts():
            place = path.relative_to(ROOT).as_posix()
            for hit in _COMPILED[rule].finditer(text) if place.startswith(below) else ():
                row = line + text[: hit.start()].count("\n")
                print(f"{place}:{row}: {' '.join(text[hit.start() - 50 : hit.end() + 50].split())}")
        return 0
    hits: Counter[tuple[str, str]] = Counter()
    words: Counter[str] = Counter()
    for kind, _, _, text in texts():
        words[kind] += len(text.split())
        for rule, pattern in _COMPILED.items():
            hits[rule, kind] += len(pattern.findall(text))
    print(f"{'rule':17}" + "".join(f"{kind:>12}" for kind in KINDS))
    for rule in RULES:
        print(f"{rule:17}" + "".join(f"{hits[rule, kind]:12}" for kind in KINDS))
    failures = []
    print(f"{'per 1,000 words':17}", end="")
    for kind in KINDS:
        rate = 1000 * sum(hits[rule, kind] for rule in RULES) / words[kind]
        print(f"{rate:12.1f}", end="")
        if rate > LIMIT:
            failures.append(f"{kind}: {rate:.1f} hits per 1,000 words, at most {LIMIT:.0f}")
    print()
    failures += list(_long_sentences(words))
    print("\n".join(failures) or "The prose is within its limits.")
    return int(bool(failures))


def _long_sentences(words: Counter[str]) -> Iterator[str]:
    long: Counter[str] = Counter()
    lengths = []
    for kind, path, _, paragraph in paragraphs():
        for sentence in _SENTENCE_END.split(paragraph):
            length = len(sentence.split())
            long[kind] += length > LONG_SENTENCE
            if path == ROOT / "README.md" or "guides" in path.parts:
                lengths.append(length)
    for kind, count in long.items():
        rate = 1000 * count / words[kind]
        print(f"{kind}: {count} sentences over {LONG_SENTENCE} words, {rate:.2f} per 1,000 words")
        if rate > LONG_LIMIT:
            yield f"{kind}: {rate:.2f} long sentences per 1,000 words, at most {LONG_LIMIT}"
    mean = sum(lengths) / len(lengths)
    print(f"README.md and guides: {mean:.1f} words per sentence")
    if mean > MEAN_LIMIT:
        yield f"README.md and guides: {mean:.1f} words per sentence, at most {MEAN_LIMIT}"


def paragraphs() -> Iterator[Text]:
    """Yield the paragraphs of documents and docstrings; an item of a list is one."""
    block: list[str] = []
    start = 0
    for kind, path, line, text in texts():
        if kind == "docstrings":
            for part in re.split(r"\n\s*\n|\n\s*(?:[-*] |\d+\. |\w+:\n)", text):
                yield kind, path, line, part
        elif kind == "documents":
            stripped = text.strip()
            if not stripped or stripped[0] in "#|>" or re.match(r"[-*+] |\d+\. ", stripped):
                if block:
                    yield kind, path, start, " ".join(block)
                block, start = [], line
            if stripped and stripped[0] not in "#|>":
                block.append(re.sub(r"^(?:[-*+]|\d+\.) ", "", stripped))


def texts() -> Iterator[Text]:
    """Yield kind, file, line and text of all that people read."""
    for name in PAGES:
        page = ROOT / name
        for path in [page] if page.is_file() else sorted(page.rglob("*.md")):
            if "api" not in path.parts:
                yield from _document(path)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for kind, line, text in _python(path):
                yield kind, path, line, text
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if "vectors" not in path.parts:
            for _, line, text in _python(path):
                yield "tests", path, line, text


def _document(path: Path) -> Iterator[Text]:
    is_code = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
            yield "documents", path, number, ""
        elif not is_code:
            yield "documents", path, number, line


def _python(path: Path) -> Iterator[tuple[str, int, str]]:
    source = path.read_text()
    nodes = list(ast.walk(ast.parse(source)))
    docstrings = {
        id(node.body[0].value)
        for node in nodes
        if isinstance(node, _DEFINITIONS) and ast.get_docstring(node, clean=False) is not None
        if isinstance(node.body[0], ast.Expr)
    }
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if id(node) in docstrings:
            yield "docstrings", node.lineno, text
        elif id(node) not in parts and " " in text and len(re.findall(r"[A-Za-z]{2,}", text)) >= 3:
            yield "strings", node.lineno, text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield "comments", token.start[0], token.string


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        sys.exit(main(sys.argv[1:]))
