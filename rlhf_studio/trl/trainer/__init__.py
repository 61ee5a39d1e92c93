"""Import lines of TRL 0.12 and after: ``from rlhf_studio.trl.trainer.utils import SIMPLE_CHAT_TEMPLATE``."""
