"""The suites that there are: a module each. A new one is found by being here."""
