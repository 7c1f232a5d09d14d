"""Programs in the style of public ones, small, for `--suite programs` and for the tests.

Files: breaks.py (one feature of Python or torch each), storms.py (numbers that change in each
call), vision.py (image sizes that change), styles.py (what libraries and examples do).
"""
