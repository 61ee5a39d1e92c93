"""The run folder and the queue: every line of SQL, every lock and every start of an engine is in this room.

Start reading in :mod:`.records`: what the engine, the run folder and the app say to each other.

- The engine's side: :mod:`.liveness` (the locks: is an engine at work?), :mod:`.writer`, :mod:`.checkpoints` (which
  ones are whole, and where a resumed run goes on; with :mod:`.manifest`).
- The viewers' side: :mod:`.reader`, :mod:`.status` (the state that a run is really in), :mod:`.show`, :mod:`.pace`,
  :mod:`.commands` (what the app asks of a running engine).
- Starting and ending: :mod:`.create` (a run folder), :mod:`.launch` (one process),
  :mod:`.processes` (several), :mod:`.workspace`, :mod:`.studio` (all runs, the queue), :mod:`.queue` (what starts when).
- From an id to a folder: :mod:`.finding` (the runs of a workspace, and the recordings that came with the program).
- What a run leads to: :mod:`.lab` (forks, more steps, sweeps, suggestions).
- What people leave behind: :mod:`.people` (the database), :mod:`.feedback`, :mod:`.classroom`, :mod:`.visitors`.
- How it is stored: :mod:`.paths`, :mod:`.schema`, :mod:`.codec` (one codec for each kind of record), :mod:`.rows`, :mod:`.values`.
- What can go wrong: :mod:`.errors`.
"""
