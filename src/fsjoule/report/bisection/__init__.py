"""A bisection for people: the answer first, then its commits, boots and cost; as text, JSON and git's own log."""
