"""PPO on a ZeroGPU Space, where a GPU is lent for about a minute at a time, to a process forked for one function.

An example of its own: it uses the package rlhf_studio, and nothing there knows of it. Start reading in :mod:`.loop`: for each run that
the queue starts, a thread of the app takes one lease after the other. A lease is one call of :func:`.worker.play` in a forked process:
there the engine goes on from the run's newest checkpoint, trains as many steps as fit, and writes a checkpoint before the lease is over.

- :mod:`.lease`: what crosses between the two processes, and how long a lease to ask for.
- :mod:`.clock`: ends an engine in time. :mod:`.forks`: no database is open in this process at the moment of a fork.
- :mod:`.askers`: who pressed the button, because the time is taken from that person's quota.
- :mod:`.refusals`: what cannot be trained in leases. :mod:`.waiting`: why a run waits, in words.
"""
