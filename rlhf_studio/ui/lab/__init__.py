"""Runs as a lab: verdicts in the table, runs side by side, experiments that follow from a run, and logs of other programs.

- :mod:`.verdicts`: what the doctor says of each run of the table, found out in a thread of its own
- :mod:`.comparing`: the Compare view
- :mod:`.experiments`: suggestions, forks, variations and sweeps
- :mod:`.opening`: others' logs as read-only runs
- :mod:`.desk`: all of it, as the pages take it
"""
