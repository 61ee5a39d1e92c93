"""Help inside the app: the documents of ``docs/`` as a place of the Learn page, and their sections for its search."""
