"""Sans-IO sessions for both flows and both roles, driven by the tables in `states`."""
