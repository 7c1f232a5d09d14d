"""`python -m minidynamo doctor`: is everything there that compiling needs, and what to do if not?

In:   this machine and this Python.   Out: one line for each thing that is needed, with advice where
      it is missing; exit status 1 if a program could not be compiled.

    $ python -m minidynamo doctor
    ok       Python 3.11.7              CPython 3.11 to 3.13
    missing  C++ compiler               Debian, Ubuntu: `apt install g++`; conda: ...

Nothing but the standard library is imported before it was looked for: this runs where the rest
cannot.  A line that is `without` says what does not work then; all the rest does.
"""

import argparse
import importlib
import importlib.metadata
import os
import platform
import shlex
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMPILERS = {
    "Linux": "Debian, Ubuntu: `apt install g++`; Fedora: `dnf install gcc-c++`; conda: `conda "
    "install cxx-compiler`; or set CXX to one",
    "Darwin": "`xcode-select --install`, or `brew install gcc` and CXX=g++-14 (for OpenMP)",
}


@dataclass
class Finding:
    """state: "ok"; "missing": nothing is compiled; "without": something else does not work."""

    state: str
    what: str
    advice: str = ""


Check = Callable[[], Finding]
CHECKS: list[Check] = []


def check(function: Check) -> Check:
    CHECKS.append(function)
    return function


def module(name: str) -> Any:
    """The module, or the exception that importing it raised."""
    try:
        return importlib.import_module(name)
    except Exception as error:  # a library may raise anything while it is loaded
        return error


# --- what must be there ---------------------------------------------------------------------------
@check
def python() -> Finding:
    found = f"{platform.python_implementation()} {platform.python_version()}"
    right = sys.implementation.name == "cpython" and (3, 11) <= sys.version_info[:2] <= (3, 13)
    if right:
        return Finding("ok", found)
    return Finding("missing", found, "install CPython 3.11, 3.12 or 3.13: the frame hook is theirs")


@check
def extension() -> Finding:
    """The frame hook; only to build it are Python's headers needed."""
    if not isinstance(module("minidynamo.frame_hook"), Exception):
        return Finding("ok", "frame hook (C extension)")
    advice = "`pip install .` in the checkout, or a wheel for this Python"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        advice = "install Python's headers (`apt install python3-dev`), then `pip install .`"
    return Finding("missing", "frame hook (C extension)", advice)


@check
def libraries() -> Finding:
    names = ("torch", "sympy", "networkx", "jinja2", "numpy")
    absent = [name for name in names if isinstance(module(name), Exception)]
    if absent:
        return Finding("missing", ", ".join(absent), f"`pip install {' '.join(absent)}`")
    found = " ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    version = tuple(int(part) for part in module("torch").__version__.split(".")[:2])
    if (2, 11) <= version <= (2, 13):
        return Finding("ok", found)
    return Finding("without", found, "tested with torch 2.11 to 2.13")


@check
def compiler() -> Finding:
    command = found_compiler()
    if command:
        return Finding("ok", f"C++ compiler: {' '.join(command)}")
    advice = COMPILERS.get(platform.system(), "set CXX to one")
    if chosen := os.environ.get("CXX"):
        advice = f"CXX is {chosen!r}, which is no program: set it to one, or unset it"
    return Finding("missing", "C++ compiler", advice + ". Until then graphs run eagerly")


def found_compiler() -> tuple[str, ...]:
    """The words of the command that kernels would be compiled with, or none;
    miniinductor/runtime/compiler.py says the same."""
    try:
        chosen = shlex.split(os.environ.get("CXX") or "")
    except ValueError:  # a quotation mark without another
        return ()
    names = chosen[:1] or ["g++", "clang++"]
    path = next((path for name in names if (path := shutil.which(name))), None)
    return (path, *chosen[1:]) if path else ()


@check
def cache() -> Finding:
    config = module("miniinductor.config")
    folder = Path(getattr(config, "cache_dir", "."))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return Finding("ok", f"kernel cache {folder}")
    except OSError as error:
        advice = f"{error}: every process compiles anew; set MINIINDUCTOR_CACHE"
        return Finding("without", f"kernel cache {folder}", advice)


@check
def gpu() -> Finding:
    torch, triton = module("torch"), module("triton")
    if isinstance(torch, Exception) or not torch.cuda.is_available():
        return Finding("without", "NVIDIA GPU", "CPU kernels alone")
    if isinstance(triton, Exception):
        return Finding("without", "triton", "`pip install 'minidynamo[gpu]'`: GPU tensors need it")
    return Finding("ok", f"{torch.cuda.get_device_name()}, triton {triton.__version__}")


@check
def works() -> Finding:
    """A function, compiled to a kernel and compared with eager."""
    minidynamo, torch = module("minidynamo"), module("torch")
    # frames of this package's own files are never compiled: this one lies in none
    softmax = eval(compile("lambda x: (x * 2).softmax(-1)", "<doctor>", "eval"))
    try:
        x = torch.linspace(-2, 2, 12).reshape(3, 4)
        compiled = minidynamo.compile(softmax, fullgraph=True)
        with torch.no_grad():
            right = bool(torch.allclose(compiled(x), softmax(x)))
        frame = [frame for frame in minidynamo.records.frames if frame.graph][-1]
    except Exception as error:  # whatever it is, it is what we are asked about
        return Finding("missing", "a compiled function", f"{type(error).__name__}: {error}")
    if not right:
        return Finding("missing", "a compiled function", "gives a wrong result: please report it")
    record = frame.backend_record
    if record is not None and record.kernels:
        return Finding("ok", f"a compiled function is right ({record.kernels[0].name})")
    # the backend has raised: the last line of its traceback says why
    why = record.notes if record is not None else frame.error.strip().splitlines()[-1:]
    return Finding("missing", "a compiled function is right, but ran eagerly", "; ".join(why))


# --- the command ----------------------------------------------------------------------------------
def main(arguments: list[str]) -> int:
    """Print all findings; 1 if something is missing that compiling needs."""
    argparse.ArgumentParser(
        prog="python -m minidynamo doctor", description="What is there, and what to do."
    ).parse_args(arguments)
    missing = 0
    for look in CHECKS:
        found = look()
        missing += found.state == "missing"
        print(f"{found.state:8} {found.what}", flush=True)
        if found.advice:
            print(f"{'':8}     {found.advice}")
    end = f"{missing} missing: what is compiled runs eagerly, or not at all, until then"
    print("\n" + (end if missing else "all that compiling needs is there"))
    return int(missing > 0)
