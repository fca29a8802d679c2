"""GitLab CI: fsjoule's part in the jobs of a pipeline.

For: the note on a merge request, a verdict as a job's reports, the jobs of the child pipeline, and run folders that
outlive their pipeline.
docs/ci.md is the guide.
Called by: `cli`.
May call: `runs`, `report`, `verdicts`, `store`, `kernels`, `host` and below.

Entry points: `note.post_note` (one note, updated in place), `verdict.metrics_text`, `component.component` (the jobs
that other repositories include), `child_pipeline.child_pipeline` (from `.ci/matrix.toml`),
`kept_runs.push_runs` and `pull_runs` (the project's package registry).
"""
