"""Build the documentation site in build/docs/site; `--serve` rebuilds it while you write.

The Markdown files stay where readers of the repository look for them. This module copies them to
one folder: README.md becomes the front page, each example becomes a page, and reference pages are
generated (`generated`). Links to files that aren't pages, such as tests, become plain text.
Zensical then builds the site with the settings in `zensical.toml`, and rejects broken links.
"""

import argparse
import ast
import posixpath
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from docs import commands_page, errors_page, log_events, settings_page

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "build" / "docs" / "pages"
SITE = ROOT / "build" / "docs" / "site"

# Pages that are not in docs/.
_ELSEWHERE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "examples": "examples/index.md",
    "tests/README.md": "tests.md",
    "tests/vectors/README.md": "vectors.md",
}
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
_TITLE = re.compile(r"^# (.*)$", re.MULTILINE)
# A link from a signature to a heading outside of the API pages that has the name of the type.
_GUESSED = re.compile(r'<a class="autorefs[^>]*href="(?:\.\./)[^"]*"[^>]*>')
# An element that a browser loads from another host.
_FETCHED = re.compile(r'<(?:script|img|iframe|link)\b[^>]*(?:src|href)="(?:https?:)?//[^"]*"[^>]*>')


def site_pages() -> dict[str, str]:
    """Return the page in the site for each source file that has one."""
    pages = {source: page for source, page in _ELSEWHERE.items() if (ROOT / source).exists()}
    paths = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.*")]
    for source in sorted([*paths, *generated()]):
        if source.endswith((".md", ".svg", ".png")):
            pages[source] = source.removeprefix("docs/").replace("README.md", "index.md")
    for path in sorted((ROOT / "examples").glob("[0-9]*.py")):
        pages[f"examples/{path.name}"] = f"examples/{path.stem}.md"
    return pages


@cache
def generated() -> dict[str, str]:
    """Return the text of each generated page, by the path that links use."""
    generators = (commands_page, errors_page, log_events, settings_page)
    return {page.PAGE: page.build() for page in generators}


def text_of(source: str) -> str:
    """Return the text of a page, from its file or its generator."""
    return generated().get(source) or (ROOT / source).read_text()


def page_texts() -> Iterator[tuple[str, str | bytes]]:
    """Yield each page with its text or, for a picture, its bytes. Links are adapted to the site."""
    pages = site_pages()
    for source, page in pages.items():
        if source == "examples":
            yield page, _list_of_examples(pages)
        elif source.endswith(".py"):
            code = (ROOT / source).read_text()
            yield page, f"# {posixpath.basename(source)}\n\n```python\n{code}```\n"
        elif not source.endswith(".md"):
            yield page, (ROOT / source).read_bytes()
        else:
            yield page, with_links(text_of(source), source, pages)


def write_pages() -> None:
    """Update the folder of pages, without touching unchanged files."""
    texts = dict(page_texts()) | {"site.css": (ROOT / "docs" / "site.css").read_text()}
    for path in PAGES.rglob("*.*"):
        if path.relative_to(PAGES).as_posix() not in texts:
            path.unlink()
    for page, text in texts.items():
        path, data = PAGES / page, text if isinstance(text, bytes) else text.encode()
        if not path.exists() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def fetched_elements(html: str) -> list[str]:
    """Return the elements of a page that load something from another host."""
    return _FETCHED.findall(html)


def with_links(text: str, source: str, pages: dict[str, str]) -> str:
    """Return the text of `source` with its links adapted to the site; code is unchanged."""

    def link(match: re.Match[str]) -> str:
        words, (place, mark, fragment) = match[1], match[2].partition("#")
        if not place or "://" in place:
            return match[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), place))
        if target not in pages:
            return words if (ROOT / target).exists() else match[0]
        if words == posixpath.basename(target) and words.endswith(".md"):
            title = _TITLE.search(text_of(target))
            words = title[1] if title else words
        start = posixpath.dirname(pages[source]) or "."
        return f"[{words}]({posixpath.relpath(pages[target], start)}{mark}{fragment})"

    parts, end = [], 0
    for fence in _FENCE.finditer(text):
        parts += [_LINK.sub(link, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, _LINK.sub(link, text[end:])])


def _list_of_examples(pages: dict[str, str]) -> str:
    lines = ["# Examples", "", "Each example shows one feature. The tests run all of them.", ""]
    for path in (ROOT / source for source in pages if source.endswith(".py")):
        about = ast.get_docstring(ast.parse(path.read_text())) or ""
        summary = " ".join(about.split("\n\n")[0].split())
        lines.append(f"- [{path.stem}]({path.stem}.md): {summary}")
    return "\n".join([*lines, ""])


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the docs site in build/docs/site.")
    parser.add_argument("--serve", action="store_true", help="serve it on a port of this machine")
    serve: bool = parser.parse_args().serve
    write_pages()
    zensical = [sys.executable, "-m", "zensical"]
    if serve:
        with subprocess.Popen([*zensical, "serve"], cwd=ROOT) as server:  # noqa: S603
            while server.poll() is None:
                time.sleep(1)
                write_pages()
        return server.returncode
    command = [*zensical, "build", "--clean", "--strict"]
    built = subprocess.run(command, cwd=ROOT, check=False)  # noqa: S603
    failed = built.returncode != 0
    for path in sorted(SITE.rglob("*.html")):
        html = path.read_text()
        for element in fetched_elements(html):
            print(f"{path.name} would load from another host: {element}")
            failed = True
        for link in set(_GUESSED.findall(html)):
            print(f"{path.name} links a type to a heading that only has its name: {link}")
            failed = True
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
