"""`parley send` and `parley receive`: transfer files between nodes."""
