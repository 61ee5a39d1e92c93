"""Fixed texts that show what the policy has learned: prompts that it answers again and again, and sentences that it reads again.

- :mod:`.watched`: the watched prompts, and the policy's answers to them.
- :mod:`.probes`: answers of the starting policy that every step's policy scores.
"""
