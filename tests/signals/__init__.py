"""Real SIGINTs into every blocking call of the client; `storm` sends them, `cases` has the calls."""
