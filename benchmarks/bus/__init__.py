"""Publishing on the durable bus, compared with Lightbus: `python -m benchmarks.bus`."""
