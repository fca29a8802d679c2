"""The use case over ports: provision, measure, judge, store."""
