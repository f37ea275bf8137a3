"""Which directory of this machine a path of Spark's names, if any.

One rule: as Hadoop reads paths, in which nothing is escaped.
"""

import re
from pathlib import Path
from typing import Final

_FILE: Final = re.compile(r"file:(//)?(?=/)")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def local_directory(path: str) -> Path | None:
    """The directory that a path names, if it is one of a file system.

    A path without a scheme may be one of another file system too, as Spark is set up.
    """
    file = _FILE.match(path)
    if file is not None:
        return Path(path[file.end() :])
    return None if _SCHEME.match(path) else Path(path).absolute()
