"""What a trial says before a long run: what its steps measured (:mod:`.measured`), and what will come of the night (:mod:`.rule`)."""

from .judgement import corrected, judgement_of
from .measured import Measured, measured
from .rule import Correction, Judgement, Night, judge, night_of

__all__ = ["Correction", "Judgement", "Measured", "Night", "corrected", "judge", "judgement_of", "measured", "night_of"]
