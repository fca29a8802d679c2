"""In a pipeline of GitLab CI: the note on a merge request, the jobs of the child pipeline, and runs that are kept."""

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
