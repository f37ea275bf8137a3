"""The access log of `parley serve` and `parley run`: its options."""
