"""`python -m minidynamo doctor`: is everything there that compiling needs, and what to do if not?

In:   this machine and this Python.   Out: a line for each thing that is needed, with advice where
      it is missing; exit status 1 if a program could not be compiled.

    $ python -m minidynamo doctor
    ok       Python 3.11.7 (CPython 3.11 to 3.13)
    ...
    missing  a compiled function is right, but ran eagerly
             no C++ compiler: Debian, Ubuntu: `apt install g++`; conda: ...

Nothing but the standard library is imported before it was looked for: this runs where the rest
cannot.
"""

import argparse
import importlib
import platform
from typing import Any

MODULES = ("torch", "sympy", "networkx", "jinja2", "numpy")
HOOK = "`pip install .` in the checkout (with Python's headers), or a wheel for this Python"


def looked_for(name: str, advice: str) -> str:
    """What is to be done before the module can be imported, or ""."""
    try:
        module: Any = importlib.import_module(name)
    except Exception as error:  # a library may raise anything while it is loaded
        return f"{advice} ({type(error).__name__}: {error})"
    print(f"ok       {name} {getattr(module, '__version__', '')}")
    return ""


def works() -> str:
    """What a function that is compiled to a kernel, and compared with eager, has to say."""
    # frames of this package's own files are never compiled: this one lies in none
    softmax = eval(compile("lambda x: (x * 2).softmax(-1)", "<doctor>", "eval"))
    try:
        minidynamo, torch = map(importlib.import_module, ("minidynamo", "torch"))
        x = torch.linspace(-2, 2, 12).reshape(3, 4)
        compiled = minidynamo.compile(softmax, fullgraph=True)
        with torch.no_grad():
            if not torch.allclose(compiled(x), softmax(x)):
                return "it gives a wrong result: please report it"
        frame = [frame for frame in minidynamo.records.frames if frame.graph][-1]
    except Exception as error:  # whatever it is, it is what we are asked about
        return f"{type(error).__name__}: {error}"
    record = frame.backend_record
    if record is not None and record.kernels:
        print(f"ok       a compiled function is right ({record.kernels[0].name})")
        return ""
    # the backend has raised: the last line of its traceback says why
    why = record.notes if record is not None else frame.error.strip().splitlines()[-1:]
    return f"it is right, but ran eagerly: {'; '.join(why)}"


def main(arguments: list[str]) -> int:
    """Print all findings; 1 if something is missing that compiling needs."""
    argparse.ArgumentParser(
        prog="python -m minidynamo doctor", description="What is there, and what to do."
    ).parse_args(arguments)
    print(f"ok       Python {platform.python_version()} (CPython 3.11 to 3.13)")
    advice = {name: looked_for(name, f"`pip install {name}`") for name in MODULES}
    advice["frame hook"] = looked_for("minidynamo.frame.frame_hook", HOOK)
    advice["a compiled function"] = works()
    for what, todo in advice.items():
        if todo:
            print(f"missing  {what}\n             {todo}")
    missing = any(advice.values())
    print(
        "\n"
        + (
            "what is compiled runs eagerly, or not at all, until then"
            if missing
            else "all that compiling needs is there"
        )
    )
    return int(missing)
