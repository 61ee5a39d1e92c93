"""The server's side of the Live page: what the page shows of a run, and how it gets it."""
