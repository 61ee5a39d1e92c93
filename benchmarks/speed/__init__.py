"""Speed beside other PPO trainers on fixed workloads. Start at ``__main__``; what is measured is in ``workloads``.

The modules that the peers' processes import (``workloads``, ``meter``, ``trl_*``) import nothing of ours and little of anybody's.
"""
