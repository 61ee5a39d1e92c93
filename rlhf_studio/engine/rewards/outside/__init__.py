"""Talking to what is not ours: ``http_client.py`` asks a server, ``python_child.py`` runs a person's function in a process of its own,
``replies.py`` checks the scores that either of them gives."""
