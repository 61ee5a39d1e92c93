"""What the analyses say about runs: one thread and one memory for the Live page, the table of runs and the experiments.

- :mod:`.worker`: :class:`Insights`, which decides what is analysed next and remembers the answers. Start here.
- :mod:`.analyses`: the analyses themselves, and what they keep of a run that goes on
- :mod:`.progress`: how far a run has got
"""

from rlhf_studio.ui.insights.analyses import BROKEN, KINDS, ON_DEMAND, Analyses, analyses
from rlhf_studio.ui.insights.progress import Progress
from rlhf_studio.ui.insights.worker import Insights

__all__ = ["BROKEN", "KINDS", "ON_DEMAND", "Analyses", "Insights", "Progress", "analyses"]
