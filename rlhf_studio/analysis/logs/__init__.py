"""Runs as JSON Lines: writing a run of ours as a text file, and opening such files, ours or another trainer's, as read-only runs.

``docs/logs.md`` describes the lines for people.

- :mod:`.shape`: the names of what a line holds, and how large it may be
- :mod:`.write`: a run as lines
- :mod:`.shareable`: what leaves this machine, without its paths and without secrets
- :mod:`.line`: one line, checked field by field
- :mod:`.records`: checked lines as the records of :mod:`rlhf_studio.runs`
- :mod:`.index`: the first pass over a file, line by line
- :mod:`.open_log`: a file as a run in a workspace
- :mod:`.apart`: the same in a process of its own, for the app
"""
