"""MBWS and MBLWS: the door, and the client of a door."""
