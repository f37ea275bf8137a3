"""`python -m node.cli` is `parley` too; `python -m parley` minds signals from its start."""

from parley._node.cli.main import main

main()
