"""All suites, one module each. A new module here is found by itself."""
