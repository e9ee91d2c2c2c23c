"""Values to frames and back: field tables, data commands, control requests and replies, packed contents. Pure."""
