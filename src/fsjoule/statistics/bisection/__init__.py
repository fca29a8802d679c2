"""Bisection under noise: which position of a range is the first bad one? docs/bisect.md explains the method.

Pure functions. They know positions (0 is the good end), figures (logarithms, larger is worse) and boots in order;
commits, boards and files are their caller's. `next_step` is deterministic, so a log of boots is all the state there is.

Entry points: `question` holds what is asked and what was seen, `step.next_step` says what to boot next or answers,
`forecast.forecast` says before the start how many boots it takes, `step.next_scan` looks between equal ends.
"""
