"""Every decoder against arbitrary octets: a table (`targets`) that scripts/fuzz runs and, briefly, the suite."""
