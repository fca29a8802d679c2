"""A kernel's repository for a bisection: its commits in a line, what each of them changes of a build, and the builds.

For: `fsjoule bisect` and `fsjoule review`. docs/bisect.md and docs/review.md are the guides.
Called by: `runs`.
May call: the rest of `kernels`, `host`, `model`, `errors`.

- `repository`: the user's repository, checked, and a scratch repository of our own that borrows its objects.
- `patch_series`: a range or patch files as such a line.
- `commits`: the commits from good to bad as a line of positions, the line inside of a merge, the tip without a commit,
  and commits that nobody wrote.
- `frozen`: the configuration of all commits, and one with aligned functions.
- `program_builds`: a boot loader or a program of the root instead of a kernel, by a command of the user's.
- `builder`: builds in the background, the most urgent first; a commit's kernel, or why it has none, is kept.
- `pools`: which files each step changes; positions with the same kernel, as builds show or forecast.
"""
