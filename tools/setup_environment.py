"""Make the virtual environment and install everything into it; a clear sentence where something is
missing.

usage: python tools/setup_environment.py VENV TORCH
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path


def step(text):
    print(f"[setup] {text}", flush=True)


def stop(text):
    print(text, file=sys.stderr)
    sys.exit(1)


def check_machine():
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if not compiler or not shutil.which(compiler.split()[0]):
        stop(
            "No C++ compiler was found: install g++ (Debian and Ubuntu: apt-get install g++; "
            "macOS: xcode-select --install)."
        )
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        stop(
            f"The headers of Python {version} are missing: install them "
            f"(Debian and Ubuntu: apt-get install python{version}-dev)."
        )
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        stop(
            "This Python has no venv module: install it "
            "(Debian and Ubuntu: apt-get install python3-venv)."
        )


def run(*command, what):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        stop(f"{result.stdout[-3000:]}\n{what} failed; the lines above say why.")


def main(environment, torch):
    check_machine()
    step(f"Python {sys.version.split()[0]}, virtual environment in {environment}")
    python = str(Path(environment) / "bin" / "python")
    if not Path(python).exists():
        run(sys.executable, "-m", "venv", environment, what="Making the virtual environment")
    have = subprocess.run(
        [python, "-c", "import torch; print(torch.__version__)"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ).stdout.strip()
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if have:
        step(f"torch {have} is there")
    else:
        step(f"installing {torch} (the largest part)")
        run(*pip, torch, "numpy", what="Installing torch")
    step("installing the packages, building the two C extensions")
    have = (
        have
        or subprocess.run(
            [python, "-c", "import torch; print(torch.__version__)"],
            stdout=subprocess.PIPE,
            text=True,
        ).stdout.strip()
    )
    run(*pip, "setuptools>=77", "wheel", what="Installing setuptools")
    run(
        *pip,
        "--no-build-isolation",
        f"torch=={have}",
        "-e",
        ".[test]",
        what="Installing the project",
    )
    # Notebooks import `benchmarks`, which is not installed: it lies in the checkout alone.
    site = subprocess.check_output([python, "-c", "import site; print(site.getsitepackages()[0])"])
    Path(site.decode().strip(), "checkout.pth").write_text(f"{Path.cwd()}\n")
    try:
        subprocess.run([python, "-c", "import pygraphviz"], check=True, capture_output=True)
    except subprocess.CalledProcessError:
        if not shutil.which("dot"):
            step("graphs will be text only: neither pygraphviz nor `dot` works (install graphviz)")
    step("ready")


if __name__ == "__main__":
    main(*sys.argv[1:])
