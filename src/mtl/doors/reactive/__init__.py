"""The Reactive Streams network protocol: the door, and the client of a door."""
