"""`parley simulate`: real nodes, made-up traffic, simulated time, and the journals they keep."""
