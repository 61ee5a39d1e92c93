"""What a trial says before a long run: what its steps measured (:mod:`.figures`), and what will come of the night (:mod:`.rule`)."""

from .figures import TrialFigures, figures_of
from .judgement import corrected, judgement_of
from .rule import Correction, Judgement, Night, judge, night_of

__all__ = ["Correction", "Judgement", "TrialFigures", "Night", "corrected", "judge", "judgement_of", "figures_of", "night_of"]
