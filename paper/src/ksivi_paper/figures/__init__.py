"""The figures of the report, one file per kind of figure."""
