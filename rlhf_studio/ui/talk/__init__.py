"""The Talk page: two policies answer one prompt side by side.

:mod:`.page` has the functions that the page can call, :mod:`.sent` checks what the page sends, :mod:`.offered` lists the runs
that can answer; :mod:`.students` and :mod:`.line` are for the students of a class.
"""
