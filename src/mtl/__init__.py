"""ZeroMQ RFC 11/MTL: wire format, sessions, client and a durable broker."""

__version__ = "0.1.0"
