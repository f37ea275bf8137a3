"""Handlers of requests: registration, permissions, interceptors, and invocation."""
