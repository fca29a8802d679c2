"""What comes with fsjoule and registers itself as a package of others would: by hooks alone.

For: `publications` (five published suites with their figures), `kernelci` and `lava` (their commands).
Called by: `hooks`, by name. No room imports this one.
May call: every room but `pytest_plugin`.

A package's `__init__.py` has its hooks and is imported as soon as any command asks what there is; its work is imported
when it is used.
"""
