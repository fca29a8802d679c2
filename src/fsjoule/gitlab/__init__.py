"""GitLab CI: what a job of a pipeline needs from fsjoule.

For: the note on a merge request, the jobs of the child pipeline, and run folders that outlive their pipeline.
docs/ci.md is the guide.
Called by: `cli`.
May call: `runs`, `store`, `kernels`, `host` and below.

Entry points: `note.post_note` (one note, updated in place), `child_pipeline.child_pipeline` (from `.ci/matrix.toml`),
`kept_runs.push_runs` and `pull_runs` (the project's package registry).
"""

from fsjoule.gitlab.child_pipeline import child_pipeline, matrix_jobs, read_matrix
from fsjoule.gitlab.kept_runs import MOST, Pulled, Registry, pull_runs, push_runs, registry_of
from fsjoule.gitlab.note import (
    Job,
    MergeRequest,
    job_of,
    merge_request_of,
    note_text,
    post_note,
)

__all__ = [
    "MOST",
    "Job",
    "MergeRequest",
    "Pulled",
    "Registry",
    "child_pipeline",
    "job_of",
    "matrix_jobs",
    "merge_request_of",
    "note_text",
    "post_note",
    "pull_runs",
    "push_runs",
    "read_matrix",
    "registry_of",
]
