"""The documentation site (`./scripts/docs`). Read site.py first: it is MkDocs' hook. generated.py writes what the pages
take from the code and from the last measurements.
"""
