"""`parley demo`: what Parley is, shown in a minute by real nodes in two processes."""
