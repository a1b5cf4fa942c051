"""What the documentation says of the code, made from the code: `make reference`.

A page of docs/ is prose with tables between markers, `<!-- settings -->` … `<!-- /settings -->`. `reference.pages` knows which page has which
tables, writes them, and tells what is out of date; tests/test_documentation.py asks it. The prose around them is written by hand.
"""
