"""The doctor: named checks that find what is wrong with a run, a verdict on what it came to, and risky settings before Start.

- :mod:`.doctor`: :func:`diagnose` and :class:`Doctor`, which does the same again and again for a run that goes on. Start here.
- :mod:`.run_data`: what the checks look at, read once from the run folder.
- :mod:`.check`: what a check is, and the registry; :mod:`.checks` has one file for each family of checks.
- :mod:`.verdict`: what a run came to; :mod:`.settings`: :func:`examine_settings`, for a configuration that has not run yet. Both are
  the frame; the rules and the words of each stage are in :mod:`.stages`.
- :mod:`.bounds`: how large a rise can be at most; :mod:`.expectation`: how many more steps would tell, and what to expect of them;
  :mod:`.held_back`: which setting holds a run back.
- :mod:`.report`: the diagnosis as text.

Every check works on a beginning of the run: what it says of step 12 does not depend on what came later. So ``since`` is the step at which
somebody who watched the run would have read the finding first.
"""

from .doctor import Doctor, diagnose
from .settings import examine_settings

__all__ = ["Doctor", "diagnose", "examine_settings"]
