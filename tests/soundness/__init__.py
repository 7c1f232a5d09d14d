"""Generators of tests for soundness: each enumerates, or draws, one class of programs.

    python -m tests.soundness.GENERATOR --count 10000 --jobs 2 [--modes inductor,eager]
    python -m tests.soundness.mutants                  # proves that the generators can fail

`modes.py` says in which ways a program is compiled, `runner.py` runs the cases in processes of
their own, `mutants.py` removes one check of the compilers at a time.
"""
