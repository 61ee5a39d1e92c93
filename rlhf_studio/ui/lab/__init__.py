"""Runs as a lab: runs side by side, experiments that follow from a run, and logs of other programs.

- :mod:`.comparing`: the Compare view
- :mod:`.experiments`: suggestions, forks, variations and sweeps
- :mod:`.opening`: others' logs as read-only runs; :mod:`.following`: while they grow
- :mod:`.desk`: all of it, as the pages take it
"""
