"""`parley run`: serves an application's own node, anew whenever its files change."""
