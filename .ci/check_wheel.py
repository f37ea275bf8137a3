"""Check that a built wheel holds the package `parley` alone, with each of its files."""

import sys
import zipfile
from pathlib import Path

FOLDERS = ("node", "crypto", "lbm", "pipeline")


def main(path: str) -> None:
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
    top = {name.split("/")[0] for name in names}
    if len(top) != 2 or not any(name.startswith("parley_node-") for name in top - {"parley"}):
        sys.exit(f"unexpected top level of {path}: {sorted(top)}")
    files = {f"parley/_{file}" for folder in FOLDERS for file in Path(folder).rglob("*.*")}
    files |= {str(file) for file in Path("parley").glob("*.*")}
    if lost := sorted(name for name in files - names if "__pycache__" not in name):
        sys.exit(f"{path} lacks {lost}")
    print(f"{path}: {len(names)} files")


if __name__ == "__main__":
    main(sys.argv[1])
