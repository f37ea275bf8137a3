"""Completion of the calls and topics of a node, from a cache or from the node itself.

Only trusted nodes are contacted: the node ID is in the address or belongs to a known peer.
Completion waits at most 2.5 seconds.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click

from parley._node.cli.completion.responder import SAFE_NAME, safe_description
from parley._node.cli.context_file import resolve_address
from parley._node.errors import ConfigError
from parley._node.trust.known_peers import default_known_peers

if TYPE_CHECKING:
    from parley._node.cli.topics import Offer

# Limits in seconds: for the node's response, for all work on it, and for the process.
ANSWER: Final = 1.5
PATIENCE: Final = 2.5
LEAVE: Final = 0.5
# Seconds for which cached names are used without asking the node.
FRESH: Final = 60.0
# Limits of the cache: nodes, names of each node, and bytes of each file.
MOST_NODES: Final = 64
MOST_NAMES: Final = 1_024
MOST_BYTES: Final = 256 * 1024
_LONGEST_FILE_NAME: Final = 200

_KINDS: Final = ("call", "topic")  # kinds of names to complete

Names = dict[str, list[tuple[str, str]]]  # by kind: each name and its description


def calls(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[tuple[str, str]]:
    return _offered(ctx, "call")


def topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[tuple[str, str]]:
    return _offered(ctx, "topic")


def _offered(ctx: click.Context, kind: str) -> list[tuple[str, str]]:
    try:
        return _names(ctx.params).get(kind, [])
    except Exception:  # completion never fails: suggest nothing
        return []


def store_names(address: str, offers: "Iterable[Offer]") -> None:
    """Cache the names that a node offers; errors are ignored."""
    names: Names = {}
    for offer in offers:
        if offer.kind in _KINDS and SAFE_NAME.fullmatch(offer.name):
            kept = names.setdefault(offer.kind, [])
            if len(kept) < MOST_NAMES:
                kept.append((offer.name, safe_description(offer.doc)))
    with suppress(OSError, ConfigError):
        file = _file(address)
        if file is not None:
            for directory in (file.parent.parent, file.parent):
                directory.mkdir(mode=0o700, exist_ok=True)
            new = file.with_name(f"{os.getpid()}.new")
            new.touch(mode=0o600)
            new.write_text(json.dumps(names), "utf-8")
            new.replace(file)
            for old in sorted(file.parent.iterdir(), key=_age)[MOST_NODES:]:
                old.unlink(missing_ok=True)


def load_names(address: str) -> tuple[Names, float]:
    """Return the cached names of a node, and their age in seconds."""
    try:
        file = _file(address)
        if file is None or file.stat().st_size > MOST_BYTES:
            return {}, float("inf")
        found = json.loads(file.read_text("utf-8"))
        # Earlier versions stored descriptions unchanged.
        names = {
            kind: [
                (name, safe_description(text))
                for name, text in found.get(kind, ())
                if SAFE_NAME.fullmatch(name)
            ]
            for kind in _KINDS
        }
    except (OSError, ConfigError, ValueError, TypeError, AttributeError):
        return {}, float("inf")
    return names, _age(file)


def _names(params: dict[str, Any]) -> Names:
    address, _ = resolve_address(params.get("address") or "")
    names, age = load_names(address)
    if age > FRESH:
        # In a separate thread, because a slow DNS resolver must not delay completion.
        asking = threading.Thread(target=_ask, args=(address, dict(params)), daemon=True)
        asking.start()
        asking.join(PATIENCE)
        if asking.is_alive():
            exit_after(LEAVE)
        names = load_names(address)[0]
    return names


def _ask(address: str, params: dict[str, Any]) -> None:
    """Cache the names of the node, if it is known and responds."""
    from parley._node.cli.topics import known_offers

    with suppress(Exception):
        store_names(address, known_offers(address, params, ANSWER))


def exit_after(seconds: float) -> None:
    """Exit after this many seconds, even if the process is waiting."""

    def leave(*_: object) -> None:
        sys.stdout.flush()
        os._exit(0)

    signal.signal(signal.SIGALRM, leave)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _file(address: str) -> Path | None:
    name = quote(address, safe="")
    if not name or len(name) > _LONGEST_FILE_NAME:
        return None
    return default_known_peers().parent / "topics" / f"{name}.json"


def _age(file: Path) -> float:
    """Return the age of the file in seconds."""
    try:
        return max(0.0, datetime.now(UTC).timestamp() - file.stat().st_mtime)
    except OSError:
        return float("inf")
