"""Generate the tables of the documentation from the code: `make reference`.

A page of docs/ is prose with tables between markers, `<!-- settings -->` … `<!-- /settings -->`.
`reference.pages` lists the tables of each page, writes them, and finds outdated pages for
tests/unit/project/test_documentation.py. The prose around the tables is written by hand.
"""
