"""The Talk page: two policies answer one prompt side by side.

:mod:`.page` is what the page can ask, :mod:`.line` the process that answers and those who wait for it, :mod:`.sent` what the page sends.
"""
