"""A kernel's repository for a bisection: its commits in a line, what each of them changes of a build, and the builds.

For: `fsjoule bisect`. docs/bisect.md is the guide.
Called by: `runs`.
May call: the rest of `kernels`, `host`, `errors`.

- `repository`: the user's repository, checked, and a scratch repository of our own that borrows its objects.
- `commits`: the commits from good to bad as a line of positions, and the line inside of a merge.
- `made_commits`: one branch's commit on top of another branch; the tip without a commit.
"""
