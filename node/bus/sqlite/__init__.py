"""The bus in one SQLite file: one thread, many requests in each transaction."""
