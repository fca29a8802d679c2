"""Publications that suites repeat: types of their figures and statements, and a run in comparison with them.

For: statements that hold or not, doubtful cells, and published figures beside measured ones.
Called by: `plugins.publications`, and packages that add a publication; `report`.

docs/publications.md explains the answers.
"""
