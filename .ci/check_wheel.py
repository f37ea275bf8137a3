"""Checks what is in a built wheel: our five packages and nothing else, and the files of pages.

Most of the names are general, so anything else at the top level would be an accident.
"""

import sys
import zipfile
from pathlib import Path

PACKAGES = {"node", "crypto", "lbm", "parley", "pipeline"}


def main(path: str) -> None:
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
    top = {name.split("/")[0] for name in names}
    metadata = {name for name in top if name.startswith("parley_node-")}
    if top - metadata != PACKAGES or len(metadata) != 1:
        sys.exit(f"unexpected top level of {path}: {sorted(top)}")
    missing = [name for name in PACKAGES if f"{name}/py.typed" not in names]
    if missing:
        sys.exit(f"no py.typed in {missing}")
    pages = [
        str(file)
        for folder in ("node/web/console/static", "pipeline/report")
        for file in Path(folder).iterdir()
        if file.is_file()
    ]
    if lost := [page for page in pages if page not in names]:
        sys.exit(f"the wheel lacks {lost}")
    print(f"{path}: {', '.join(sorted(PACKAGES))}, {len(names)} files")


if __name__ == "__main__":
    main(sys.argv[1])
