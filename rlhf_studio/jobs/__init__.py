"""Work beside a run: talking to its policies, trying rewards, taking it home, and all stages one after the other.

What the app imports of this loads no torch; what needs torch runs in a child process (:mod:`rlhf_studio.child_process`).
"""
