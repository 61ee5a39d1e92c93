"""Whether this machine's device computes what a CPU computes: the command ``check``. Start with ``checks``.

- ``checks``: the list, and what one check is given and gives back.
- ``driver``: works through the list with a child process; a check that crashes or hangs takes nothing else with it.
- ``server``: the side of the child process.
- ``page``: the lines on the terminal, and the JSON file.
- ``runs``: prepares run folders and trains them with the engine, as every command does.
- one file for each kind of check: ``machine``, ``memory``, ``examples`` (the stages that learn from examples), ``rollouts`` (PPO),
  ``resuming``, ``quantized``, ``processes``, ``speed``.
- ``against_cpu``: recorded tokens read again by transformers alone, on the CPU in float32.
- ``workloads``: models of real shapes that are timed on a GPU.
"""
