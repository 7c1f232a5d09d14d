"""What calls mean, one subject a file.

Each file adds its entries to the tables of `variables/registry.py` and `evaluate/calls.py` when it
is imported; a call that nobody has registered breaks the graph.
"""

from . import (  # noqa: F401
    builtins,
    c_methods,
    custom_functions,
    instances,
    library,
    polyfills,
    strings,
    torch_functions,
    torch_state,
)
