"""`python -m node.cli` is `parley`."""

from node.cli.main import main

main()
