"""Scoring single texts before any run: ``one_text.py`` scores, ``command.py`` is the command ``score``, ``server.py`` serves the app."""
