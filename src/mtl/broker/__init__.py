"""The broker: a deterministic core (`core`) and the loop with sockets, threads and the clock around it (`server`)."""
