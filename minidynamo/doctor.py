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
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMPILERS = {
    "Linux": "Debian, Ubuntu: `apt install g++`; Fedora: `dnf install gcc-c++`; conda: `conda "
    "install cxx-compiler`; or set CXX to one",
    "Darwin": "`xcode-select --install`, or `brew install gcc` and CXX=g++-14 (for OpenMP)",
}
OPENMP = """
#include <omp.h>
int main() { int n = 0;
#pragma omp parallel reduction(+:n)
n += 1;
return n < 1; }
"""


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
def system() -> Finding:
    found = f"{platform.system()} {platform.machine()}"
    if platform.system() == "Linux":
        return Finding("ok", found)
    advice = "tested on Linux alone; docs/platforms.md says what to expect here"
    return Finding("without", found, advice)


@check
def extension() -> Finding:
    """The frame hook; only to build it are Python's headers needed."""
    error = module("minidynamo.frame_hook")
    if not isinstance(error, Exception):
        return Finding("ok", "frame hook (C extension)")
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if header.exists():
        advice = "`pip install .` in the checkout, or a wheel for this Python"
    else:
        advice = f"{header} is not there: install Python's headers (`apt install python3-dev`), "
        advice += "then `pip install .`"
    return Finding("missing", "frame hook (C extension)", advice)


@check
def torch() -> Finding:
    torch = module("torch")
    if isinstance(torch, Exception):
        advice = "`pip install torch` (2.11 to 2.13)"
        return Finding("missing", f"torch: {str(torch).splitlines()[0]}", advice)
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if (2, 11) <= version <= (2, 13):
        return Finding("ok", f"torch {torch.__version__}")
    advice = "tested with torch 2.11 to 2.13: `pip install 'torch>=2.11,<2.14'`"
    return Finding("without", f"torch {torch.__version__}", advice)


@check
def libraries() -> Finding:
    names = ("sympy", "networkx", "jinja2", "numpy")
    absent = [name for name in names if isinstance(module(name), Exception)]
    if absent:
        return Finding("missing", ", ".join(absent), f"`pip install {' '.join(absent)}`")
    return Finding("ok", " ".join(f"{n} {importlib.metadata.version(n)}" for n in names))


@check
def compiler() -> Finding:
    command = found_compiler()
    if command:
        version = output_of([*command, "--version"]).partition("\n")[0]
        return Finding("ok", f"C++ compiler: {version or command[0]}")
    advice = COMPILERS.get(platform.system(), "set CXX to one")
    if chosen := os.environ.get("CXX"):
        advice = f"CXX is {chosen!r}, which is no program: set it to one, or unset it"
    advice += ". Until then graphs run with eager's kernels"
    return Finding("missing", "C++ compiler", advice)


def found_compiler() -> tuple[str, ...]:
    """The words of the command that kernels would be compiled with, or none;
    miniinductor/extras/careful_compiler.py says the same."""
    try:
        chosen = shlex.split(os.environ.get("CXX") or "")
    except ValueError:  # a quotation mark without another
        return ()
    names = chosen[:1] or ["g++", "clang++"]
    path = next((path for name in names if (path := shutil.which(name))), None)
    return (path, *chosen[1:]) if path else ()


def output_of(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


# --- what something needs -------------------------------------------------------------------------
@check
def openmp() -> Finding:
    command = found_compiler()
    advice = "kernels run on one thread; g++ has OpenMP"
    if not command:
        return Finding("without", "OpenMP", "needs the compiler first")
    if "clang" in os.path.basename(command[0]):
        return Finding("without", "OpenMP (clang's runtime does not know torch's threads)", advice)
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "probe.cpp"), Path(folder, "probe")
        source.write_text(OPENMP)
        built = output_of([*command, "-fopenmp", str(source), "-o", str(program)]) == ""
        works = built and program.exists()
    return Finding("ok", "OpenMP") if works else Finding("without", "OpenMP", advice)


@check
def cache() -> Finding:
    config = module("miniinductor.config")
    if isinstance(config, Exception):
        return Finding("missing", "kernel cache", f"miniinductor cannot be imported: {config}")
    folder = Path(config.cache_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        advice = f"{error}; a temporary folder is used, and every process compiles anew: set "
        return Finding("without", f"kernel cache {folder}", advice + "MINIINDUCTOR_CACHE")
    sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
    text = f"kernel cache {folder}: {len(sizes)} files, {sum(sizes) / 1e6:.0f} MB"
    return Finding("ok", text)


@check
def gpu() -> Finding:
    torch = module("torch")
    if isinstance(torch, Exception) or not torch.cuda.is_available():
        return Finding(
            "without", "NVIDIA GPU", "CPU kernels alone; Triton's run in its interpreter"
        )
    names = {torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())}
    return Finding("ok", f"{torch.cuda.device_count()} GPU: {', '.join(sorted(names))}")


@check
def triton() -> Finding:
    triton = module("triton")
    if not isinstance(triton, Exception):
        return Finding("ok", f"triton {triton.__version__}")
    advice = "`pip install 'minidynamo[gpu]'`: GPU tensors, and chapter 12, need it"
    return Finding("without", "triton", advice)


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
    if record is None:  # the backend has raised: the last line of its traceback says why
        why = (frame.error.strip() or "the backend raised").splitlines()[-1]
        return Finding("missing", "a compiled function is right, but ran eagerly", why)
    if record.kernels:
        return Finding("ok", f"a compiled function is right ({record.kernels[0].name})")
    why = "; ".join(record.notes)
    return Finding("missing", "a compiled function is right, but ran eagerly", why)


# --- the command ----------------------------------------------------------------------------------
def findings() -> Iterator[Finding]:
    for look in CHECKS:
        yield look()


def main(arguments: list[str]) -> int:
    """Print all findings; 1 if something is missing that compiling needs."""
    argparse.ArgumentParser(
        prog="python -m minidynamo doctor", description="What is there, and what to do."
    ).parse_args(arguments)
    missing = 0
    for found in findings():
        missing += found.state == "missing"
        print(f"{found.state:8} {found.what}", flush=True)
        if found.advice:
            print(f"{'':8}     {found.advice}")
    if missing:
        print(f"\n{missing} missing: what is compiled runs eagerly, or not at all, until then")
    else:
        print("\nall that compiling needs is there")
    return int(missing > 0)
