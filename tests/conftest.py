"""Nothing is imported here: the tests of the frame hook, the bytecode package and the resume functions run without torch.

`python tests/run_pythons.py` runs those on every CPython 3.11-3.13 that it finds.
"""
