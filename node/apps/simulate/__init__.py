"""`parley simulate`: real nodes with generated traffic in simulated time, which write journals."""
