"""Publications that suites repeat: types of their figures and statements, and a run in comparison with them.

For: statements that hold or not, doubtful cells, and published figures beside measured ones.
Called by: `suites.definitions`, where a publication stands with its suite; `report`.

docs/publications.md explains the answers.
"""
