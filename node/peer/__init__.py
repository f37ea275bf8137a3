"""One native connection, as an application uses it."""
