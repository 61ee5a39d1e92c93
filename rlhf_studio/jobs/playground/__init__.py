"""Trying a reward model on a text: ``look.py`` scores every beginning of it and every change of a word, ``server.py`` serves the app."""
