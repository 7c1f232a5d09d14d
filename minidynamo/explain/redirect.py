"""`--redirect`: a program that uses torch's own compiler is compiled by ours, for this run.

    python -m minidynamo explain --redirect train.py

In:   nothing; the program's calls of torch's `compile` come here, as functions, decorators and
      `module.compile()`.
Out:  what `minidynamo.compile` makes of the same function or module.

Options that ours does not have are left out, and named once.  This file is the one place where the
other compiler's entry point is named: it is replaced, never called.
"""

import functools
from typing import Any

import torch

from .. import api, backends, records

OURS = ("fullgraph", "dynamic", "mode")  # options that both have


def redirect() -> None:
    """From now on torch's `compile` is ours, until the process ends."""
    torch.compile = redirected


def redirected(model: Any = None, **options: Any) -> Any:
    """`minidynamo.compile` with those of these options that it has."""
    if model is None:
        return functools.partial(redirected, **options)
    if options.get("disable"):
        return model
    kept = {name: value for name, value in options.items() if name in OURS}
    backend = options.get("backend", "inductor")
    if callable(backend) or backend in backends.list_backends():
        kept["backend"] = backend
    if kept.get("mode") not in api.CHOICES["mode"]:
        del kept["mode"]
    left_out = {name for name in options if name not in kept and options[name]} - {"disable"}
    if left_out:
        names = ", ".join(sorted(left_out))
        records.warn_once(names, f"--redirect leaves out: {names}")
    return api.compile(model, **kept)
