"""Code and servers outside the program: ``http_client.py`` asks a server, ``python_child.py`` runs a person's function in a process,
``replies.py`` checks the scores that either of them gives."""
