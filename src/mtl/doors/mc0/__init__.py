"""mc0 0.3: the door, and the client of a middleware."""
