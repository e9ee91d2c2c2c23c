"""The documentation site (`./scripts/docs`). Read site.py first: it is MkDocs' hook. generated.py writes the parts of
the pages that depend on the code and on the last measurements.
"""
