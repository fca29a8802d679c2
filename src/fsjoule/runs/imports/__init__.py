"""Runs that others have measured, as run folders of lesser standing: `importers` is the table, one row a format.

Such a run says what it was imported from. Its series have a suite of their own (`imported from fio`), so that no figure
of it is compared with one of fsjoule's. A file is read whole before anything is written.
"""
