"""`parley send` and `parley receive`: files from node to node."""
