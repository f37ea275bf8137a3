"""The command line: `parley`. What a person touches, on top of all the rest."""
