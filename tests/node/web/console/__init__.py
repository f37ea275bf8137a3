"""Tests of `node/web/console`."""
