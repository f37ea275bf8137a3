"""`parley serve` and `parley run`."""
