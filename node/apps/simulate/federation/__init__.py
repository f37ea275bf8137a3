"""`parley simulate federation`: the pure core of federation in a made-up world, and what held."""
