"""Tests of node/server."""
