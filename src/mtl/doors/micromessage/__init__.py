"""MicroMessage2 1.0: the door, and the client of a server."""
