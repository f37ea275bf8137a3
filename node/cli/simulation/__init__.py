"""`parley simulate`: journals of made-up traffic, and whole federations on a made-up clock."""
