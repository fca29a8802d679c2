"""This computer: processes, paths, terminals, signals, files and caches."""
