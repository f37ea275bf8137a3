"""Check that the core of the installed Parley is compiled, as in the wheels of a release."""

import sys
from importlib.machinery import EXTENSION_SUFFIXES

from parley._node.transport import driver

if not (driver.__file__ or "").endswith(tuple(EXTENSION_SUFFIXES)):
    sys.exit(f"the core is not compiled: {driver.__file__}")
print(f"the core is compiled: {driver.__file__}")
