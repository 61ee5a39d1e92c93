"""The PPO engine: it trains a run, in a process of its own, and knows nothing of the app.

From the top to the bottom; a room uses only those below it:

- :mod:`.check`: whether a machine's device computes what a CPU computes
- :mod:`.process`: the engine process, what people ask of it, how it stops
- :mod:`.stages`: what a run does, as the engine process drives it: PPO, and the stages before and after it
- :mod:`.parity`: whether a model's numbers are its own, checked before anything is learned
- :mod:`.saving`: checkpoints and snapshots
- :mod:`.loop`: the PPO algorithm. Start with :meth:`.loop.trainer.Trainer.step`.
- :mod:`.recording`: what is kept of a step, and the sentences about it
- :mod:`.rewards`: scoring responses
- :mod:`.sampling`: writing responses, token by token
- :mod:`.models`: loading, policy, critic, reference, LoRA
- :mod:`.compute`: devices, what makes forward passes fast, and several processes that train one policy

Every room may use :mod:`.types` (the records between the phases), :mod:`.text`, :mod:`.padding`, :mod:`.learning_rate` and
:mod:`.objective`.
"""

import logging

# peft imports bitsandbytes wherever it is installed, which then warns on a CPU that a kernel for quantized weights is missing.
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
