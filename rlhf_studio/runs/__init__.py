"""The run folder and the queue: every line of SQL, every lock and every start of an engine is in this room.

Start reading in :mod:`.records`: what the engine, the run folder and the app say to each other.

- The engine's side: :mod:`.liveness` (the locks: is an engine at work?), :mod:`.writer`, :mod:`.heartbeat`, :mod:`.checkpoints` (which
  ones are whole, and where a resumed run goes on; with :mod:`.manifest`).
- The viewers' side: :mod:`.reader`, :mod:`.status` (the state that a run is really in), :mod:`.listing`, :mod:`.show`, :mod:`.pace`,
  :mod:`.commands` (what the app asks of a running engine).
- Starting and ending: :mod:`.create` (a run folder), :mod:`.start` (the three ways and their command line), :mod:`.launch` (one process),
  :mod:`.processes` (several), :mod:`.workspace`, :mod:`.studio` and :mod:`.claims` (all runs, the queue), :mod:`.queue` (the dispatcher).
- From an id to a folder: :mod:`.finding` (the runs of a workspace, and the recordings that came with the program).
- What a run leads to: :mod:`.lab` (forks, more steps, sweeps, suggestions).
- How it is stored: :mod:`.paths`, :mod:`.schema`, :mod:`.rows`, :mod:`.values`. What can go wrong: :mod:`.errors`.
"""
