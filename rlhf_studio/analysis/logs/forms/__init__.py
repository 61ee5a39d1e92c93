"""The forms in which other programs write their rollouts: one small file for each, known by the fields of a record and not by file names.

Each gives one :class:`~rlhf_studio.analysis.logs.forms.form.Form`; everything behind it (checking, storing, following) sees lines of our
own kind alone. A new form is a file here and its name in :data:`FORMS`; ``docs/logs.md`` has a row for each.
"""

from __future__ import annotations

from rlhf_studio.analysis.logs.forms import board, openrlhf, prime_rl, tinker, trl, verl

FORMS = (prime_rl.FORM, tinker.FORM, openrlhf.FORM, trl.FORM, verl.FORM, board.FORM)
"""In the order in which they are tried: the ones with rare names first."""
