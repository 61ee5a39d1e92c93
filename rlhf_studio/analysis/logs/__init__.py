"""Runs as JSON Lines: writing a run of ours as a text file, and opening logs, ours or another trainer's, as read-only runs.

``docs/logs.md`` describes them for people. Others' records become lines of our own kind; all that follows sees only those.

- :mod:`.shape`: the names of what a line holds, and how large it may be
- :mod:`.write`: a run as lines
- :mod:`.shareable`: what leaves this machine, without its paths and without secrets
- :mod:`.sources`: the files of a log and the records in them, also while they grow
- :mod:`.forms`: how other programs write a response, one file for each
- :mod:`.recognize`: which form a record has, or what it looks like
- :mod:`.cutting`: texts into tokens
- :mod:`.translate`: others' records as lines of our own kind
- :mod:`.line`: one line, checked field by field
- :mod:`.records`: checked lines as the records of :mod:`rlhf_studio.runs`
- :mod:`.index`: the first pass over the lines
- :mod:`.open_log`: a log as a run in a workspace
- :mod:`.follow`: a log that grows, as a run that grows with it
- :mod:`.apart`: opening in a process of its own, for the app
"""
