"""Several boards in guest time that boot at once, for one run.

Figures of such boards do not depend on the host, nor on which of them boots. So the boots of a plan are made ahead,
each by any board that is free, and are taken in the order of the plan: whoever judges them sees what one board would
have measured. The unit is a boot, because all that is measured in it depends on what was done before in the same boot.

`processes` starts a process for each board and hears them, and has the other end, too; `messages` is what they say to
each other. For the plan of one run, `boards` gives boots to the boards that are free, `worker` is the process of a
board, and `bench` puts the boots together into one run. A bisection's boots, each a run of its own, are in
`bisect.pool`.
"""
