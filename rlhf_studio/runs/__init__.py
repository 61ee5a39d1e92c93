"""The run folder and the queue: every line of SQL, every lock and every engine process is made in this package.

Engine side: :mod:`.liveness` (EngineLock), :mod:`.writer` (RunWriter, Heartbeat). Viewer side: :mod:`.reader` (RunReader),
:mod:`.commands` (send_command), :mod:`.workspace` (Workspace), :mod:`.queue` (Dispatcher), :mod:`.launch`. What they say to each
other is in :mod:`.records`; what can go wrong is in :mod:`.errors`.
"""
