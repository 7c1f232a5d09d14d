"""The command line: `python -m minidynamo COMMAND ...`.

    python -m minidynamo explain script.py -o page.html

In:   the name of a command and its own arguments.   Out: the process's exit status.

Each command is a row of `COMMANDS`: its name, the module whose `main(arguments) -> int` it runs,
and a sentence for the list that `--help` shows.  A module is imported when its command is asked
for, so that no command pays for another one.
"""

import importlib
import sys

from miniinductor.options import did_you_mean

COMMANDS = {  # name -> (module with `main(arguments: list[str]) -> int`, what it does)
    "explain": (
        "minidynamo.explain.command",
        "run a program unchanged, and write a page on which every stage can be followed",
    ),
    "explore": (
        "minidynamo.explain.live",
        "the same as a page that follows the file: save it, and see what changed",
    ),
    "tour": ("minidynamo.explain.tour", "one function through every stage, in this terminal"),
    "report": ("minidynamo.explain.report", "one index of the pages that MINI_TRACE=folder wrote"),
    "doctor": (__name__, "what compiling needs, and the first thing that is missing"),
}


NEEDED = ("torch", "sympy", "networkx", "jinja2", "numpy", "minidynamo.frame.frame_hook")


def doctor() -> int:
    """Import what compiling needs, and compile a function; 1 if the first of these fails."""
    what = ""
    try:
        for what in NEEDED:
            importlib.import_module(what)
            print("ok      ", what)
        what = "a C++ compiler"  # (frames of this package's own files are never compiled)
        function = eval(compile("lambda x: x * 2 + 1", "<doctor>", "eval"))
        torch, capture = map(importlib.import_module, ("torch", "minidynamo"))
        capture.compile(function)(torch.ones(4))
        record = capture.records.frames[-1].backend_record
        if not record.kernels:
            raise RuntimeError("; ".join(record.notes))
    except Exception as error:  # whatever it is, it is what we are asked about
        print(f"missing  {what}\n         {type(error).__name__}: {error}")
        return 1
    print("all that compiling needs is there")
    return 0


def usage() -> str:
    """What `--help` prints: one line for each command."""
    lines = [f"    {name:10} {does}" for name, (_, does) in COMMANDS.items()]
    example = "example: python -m minidynamo explain train.py -o page.html"
    return "\n".join(["usage: python -m minidynamo COMMAND ...", "", *lines, "", example])


def main(arguments: list[str]) -> int:
    """Run the command that the first argument names; the exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return 0
    name, *rest = arguments
    if name == "doctor":
        return doctor()
    if name not in COMMANDS:
        meant = did_you_mean(name, COMMANDS)
        print(f"there is no command {name!r}{meant}\n{usage()}", file=sys.stderr)
        return 2
    return importlib.import_module(COMMANDS[name][0]).main(rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
