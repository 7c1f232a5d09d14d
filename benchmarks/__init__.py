"""Benchmarks: eager, torch.compile and ours, interleaved in one process.

    python -m benchmarks --suite smoke --json result.json

Files: workloads.py (functions and inputs), models.py (real models, random weights), runner.py
(measuring), suites/ (what each suite runs and prints, one per file).  This package and the tests
are the only places that import the real torch.compile.
"""
