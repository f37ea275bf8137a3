"""The bus on Redis Streams, in Lightbus's formats."""
