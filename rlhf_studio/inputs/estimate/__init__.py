"""What a run will cost, worked out before it starts: memory, disk, time, and the devices that are there. Without torch.

:mod:`device`       the processor or GPU that a run's settings lead to, and its free memory
:mod:`counts`       what every estimate starts from: a run's models, their weights, the rows sampled together
:mod:`memory`       memory, part by part, and the cheapest change that makes a run fit
:mod:`cpu`          numbers that the engine on a CPU and the memory estimate must agree on
:mod:`disk`         what a run writes, against what is free
:mod:`speed`        seconds per step, from this machine's measured matrix rate

Nothing is loaded for an estimate: it is arithmetic on the settings and on what :mod:`rlhf_studio.inputs` reads in the models' small
files. :mod:`rlhf_studio.inputs.preflight` asks for all of it at once.
"""
