"""The Live page's side of the server: what it shows of a run, and how it learns of it."""
