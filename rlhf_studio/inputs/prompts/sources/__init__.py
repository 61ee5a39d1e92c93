"""Rows of one source, one file for each kind of source, bounded in memory.

:mod:`opening`  which reader a source needs, told from its name: start here
:mod:`rows`     what every reader gives, and the limits that hold for all
:mod:`lines`    text, CSV and JSON files, read here
:mod:`tables`   Parquet files, folders and hub datasets, read by a helper process; in that process
:mod:`hub` and :mod:`parquet` do the reading
"""
