"""`python -m node.cli` is `parley` too; `python -m parley` minds signals from its start."""

from node.cli.main import main

main()
