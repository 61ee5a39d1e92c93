"""The checks, one file for each family. Importing this registers all of them in the order of the docs."""

from . import kl, entropy, text, reward, reward_text, value, optimisation, machine, data  # noqa: F401, I001  (the order of the docs)
from . import supervised, examples, reward_model, dpo  # noqa: F401
