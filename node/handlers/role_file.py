"""The file of roles: which node ids have which of an application's roles.

line = node id (52 characters), then its roles; blanks between them
lines that are empty or begin with # say nothing; an id may have several lines
"""

import os
from pathlib import Path
from typing import Final

from parley._crypto.errors import IdentityError
from parley._crypto.identity import NodeId
from parley._node.errors import ConfigError, FileError, os_reason

# As much as a file of known peers may have.
MAX_FILE_SIZE: Final = 1_048_576


def read_roles(path: str | os.PathLike[str]) -> dict[NodeId, frozenset[str]]:
    """The roles that a file gives; it takes the time of a disk.

    Raises:
        FileError: it cannot be read, is too large, or a line is malformed; which one is named.
    """
    file = Path(path)
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE_SIZE + 1)
        if len(content) > MAX_FILE_SIZE:
            raise FileError(f"{file} has more than {MAX_FILE_SIZE:,} bytes")
        lines = content.decode("utf-8").splitlines()
    except OSError as error:
        raise FileError(f"cannot read {file}: {os_reason(error)}") from error
    except UnicodeDecodeError as error:
        raise FileError(f"{file} is not UTF-8") from error
    roles: dict[NodeId, frozenset[str]] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            node_id = NodeId.parse(words[0])
            given = frozenset(map(require_role, words[1:]))
        except (IdentityError, ConfigError) as error:
            raise FileError(f"{file}, line {number}: {error}") from error
        if not given:
            raise FileError(f"{file}, line {number}: after the node id stand its roles")
        roles[node_id] = roles.get(node_id, frozenset()) | given
    return roles


def require_role(role: object) -> str:
    """Return a role; ConfigError if it is empty, or the text of a node id."""
    if isinstance(role, str) and role:
        try:
            NodeId.parse(role)
        except IdentityError:
            return role
    raise ConfigError(f"a role is a word, and not a node id: {role!r}")
