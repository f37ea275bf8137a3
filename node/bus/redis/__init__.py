"""A bus on Redis Streams, in the format of Lightbus."""
