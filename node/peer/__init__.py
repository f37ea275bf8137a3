"""One native connection as its user sees it."""
