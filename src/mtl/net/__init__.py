"""Frames between sockets and sessions. The only package that imports zmq."""
