"""`fsjoule bisect`: which commit changed a figure.

Each boot is a run of its own (`boots`), so that every figure stays in an ordinary run folder. The log
(`fsjoule.store.bisection`) is all the state there is: the next step follows from it (`fsjoule.statistics.bisection`).

`bisection` puts it together, `search` is the loop. `question` checks the input, `builds` gives kernels, `boots` boots
them on a board, `recorded` has earlier runs. `confirmed` asks what trends tell.
"""
