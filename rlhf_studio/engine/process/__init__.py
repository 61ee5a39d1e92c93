"""The engine process of a run: everything around the training loop that makes a run of it.

Start reading in :mod:`.worker`: ``run_engine`` takes the run's lock, and ``Worker`` loads, trains, stores every step and records how
the run ended; :mod:`.control` carries out what people ask of it meanwhile. Where a run has several processes, those other than rank 0
are :mod:`.followers`.

- :mod:`.stopping`: what a request to stop does. :mod:`.trackers`, :mod:`.memory_event`: what is reported beside the run's own record.
- :mod:`.screen`, :mod:`.console`: what goes into ``engine.log`` and what a person sees on the terminal.
- :mod:`.program_run`: the run of a person's own program, which makes the steps itself.
- :mod:`.unpickling`: a helper of ``convert``, in a process of its own; no engine uses it.

What happens at SIGTERM (and at SIGINT, and when the app asks for a stop):

1. While the libraries and models load, :class:`.stopping.Signals` raises ``StopRequested`` in the main thread, at once. Where the main
   thread is in C code and does not react, :class:`.stopping.StopWatcher` ends the process after five seconds.
2. While it trains, the step is finished, a checkpoint is written, and the run ends. A second signal ends the process without waiting.
3. Either way the run's state is ``stopped``, an event says who asked, and the exit code is 3. In a run of several processes only
   rank 0 reacts; it tells the others when to stop.
"""
