"""Taking a run home from the pages: :mod:`.actions` makes files in the run's folder ``exports``, :mod:`.downloads` hands them out."""
