"""In a pipeline of GitLab CI: the note on a merge request, and the jobs of the child pipeline."""

from fsjoule.ci.matrix import child_pipeline, matrix_jobs, read_matrix
from fsjoule.ci.note import Job, MergeRequest, job_of, merge_request_of, note_text, post_note

__all__ = [
    "Job",
    "MergeRequest",
    "child_pipeline",
    "job_of",
    "matrix_jobs",
    "merge_request_of",
    "note_text",
    "post_note",
    "read_matrix",
]
