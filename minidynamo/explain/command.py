"""`python -m minidynamo explain script.py [arguments] -o page.html`: run a program, write its page.

In:   the command's arguments.   Out: the program's exit status, and one HTML file.

The program runs as `python script.py` would run it: as `__main__`, with its own `sys.argv` and its
folder on `sys.path`; it ends with its own exit status and traceback.  `-o` stands before the
program, or is the last of its arguments but one; a program that has an `-o` of its own gets it if
ours stands in front.
"""

import builtins
import importlib.util
import os
import runpy
import sys
import types
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from pathlib import Path

import miniinductor
from miniinductor.options import did_you_mean

from . import trace
from .running import Looks

USAGE = """usage: python -m minidynamo explain [-o page.html] [options] script.py [arguments]
       python -m minidynamo explain [-o page.html] [options] -m module [arguments]
       ... -o page.html may also stand at the end; without it, the page is explain.html
       --measure         each kernel is timed, once, on copies of its arguments
       --assembly        the page has the innermost loops of each kernel as machine code
       --redirect        torch.compile is minidynamo.compile for this run
       --set name=value  an option of miniinductor.config: --set fusion=False

example:  python -m minidynamo explain --measure -o page.html train.py --epochs 1
          (arguments after the script belong to the script)"""
NOTHING = "nothing was compiled by minidynamo: decorate a function with @minidynamo.compile"
ELSEWHERE = "nothing was compiled by minidynamo: the program uses torch.compile; try it with ours:"
HELP = "python -m minidynamo explain --help lists the options; they stand before the script"
LOOKS = {"--measure": "measure", "--assembly": "assembly"}
OUTPUT = ("-o", "--output")
OPTIONS = (*LOOKS, *OUTPUT, "-m", "-h", "--help", "--redirect", "--set")


class Mistake(Exception):
    """What is wrong with the command line, in a sentence."""


@dataclass
class Wish:
    """What a command line asks for.  switches: of miniinductor.config."""

    program: str = ""
    its_own: list[str] = field(default_factory=list)
    is_module: bool = False
    output: str = ""
    is_redirected: bool = False
    looks: dict[str, bool] = field(default_factory=dict)
    switches: dict[str, object] = field(default_factory=dict)


def read(arguments: list[str]) -> Wish:
    """The wish that a command line is.  Raises Mistake."""
    rest, wish = list(arguments), Wish()
    while rest and rest[0].startswith("-") and not wish.is_module:
        option = rest.pop(0)
        if option in (*OUTPUT, "--set") and not rest:
            raise Mistake(f"{option} needs a value behind it")
        if option in OUTPUT:
            wish.output = rest.pop(0)
        elif option == "--set":
            wish.switches |= switch(rest.pop(0))
        elif option in LOOKS:
            wish.looks[LOOKS[option]] = True
        elif option not in OPTIONS:
            raise Mistake(f"there is no option {option}" + did_you_mean(option, OPTIONS))
        wish.is_redirected |= option == "--redirect"
        wish.is_module = option == "-m"
    if not wish.output and len(rest) > 2 and rest[-2] in OUTPUT:
        *rest, _, wish.output = rest
    if not rest:
        raise Mistake("which program?")
    wish.program, *wish.its_own = rest
    if not wish.is_module and not Path(wish.program).is_file():
        raise Mistake(f"there is no file {wish.program!r}")
    return wish


def switch(text: str) -> dict[str, object]:
    """ "fusion=False" -> {"fusion": False}."""
    name, _, value = text.partition("=")
    plain: dict[str, object] = {"True": True, "False": False}
    found = {name: plain.get(value, int(value) if value.isdigit() else value)}
    try:
        with miniinductor.config.patch(**found):
            return found
    except (AttributeError, TypeError, ValueError) as error:
        raise Mistake(f"--set {text}: {error}") from None


def main(arguments: list[str]) -> int:
    """Run the program that `arguments` name; the exit status that it would have had."""
    if arguments and arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0
    try:
        wish = read(arguments)
    except Mistake as mistake:
        print(mistake, USAGE if not arguments else HELP, sep="\n", file=sys.stderr)
        return 2
    page = Path(wish.output or "explain.html").absolute()
    if not page.parent.is_dir():
        print(f"there is no folder {str(page.parent)!r}", file=sys.stderr)
        return 2
    if wish.is_redirected:
        from .redirect import redirect

        redirect()
    trace.start(page, wish.program, Looks(**wish.looks))
    trace.STARTED[0].blocks.enter_context(miniinductor.config.patch(**wish.switches))
    try:
        status = run(wish.program, wish.its_own, wish.is_module)
    except SystemExit as end:
        if trace.STARTED[0].told() or end.code:
            raise
        status = 0
    if trace.STARTED[0].told():
        return status
    print(advice(wish, arguments), file=sys.stderr)
    return status or 1


def advice(wish: Wish, arguments: list[str]) -> str:
    """What to do where nothing was compiled."""
    path: str | None = wish.program
    if wish.is_module:
        path = getattr(importlib.util.find_spec(wish.program), "origin", None)
    is_there = path is not None and Path(path).is_file()
    uses = is_there and "torch.compile" in Path(str(path)).read_text(errors="replace")
    if not uses or wish.is_redirected:
        return NOTHING
    return f"{ELSEWHERE} python -m minidynamo explain --redirect {' '.join(arguments)}"


def run(program: str, arguments: list[str], is_module: bool) -> int:
    """Run it; an exception is printed as Python prints it, without the frames of this file."""
    sys.argv = [program, *arguments]
    try:
        if is_module:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            run_script(program)
    except SystemExit:
        raise
    except BaseException as error:
        told = error.with_traceback(its_own_frames(error.__traceback__))
        sys.excepthook(type(told), told, told.__traceback__)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def run_script(path: str) -> None:
    """Run a file as `__main__`.  The module stays that until the process ends: functions of the
    program may run at exit."""
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    main_module = types.ModuleType("__main__")
    vars(main_module).update(
        __file__=path,
        __builtins__=builtins,
        __cached__=None,
        __loader__=SourceFileLoader("__main__", path),
    )
    sys.modules["__main__"] = main_module
    code = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    exec(code, vars(main_module))


def its_own_frames(found: types.TracebackType | None) -> types.TracebackType | None:
    """A traceback from the program's first frame on."""
    ours = (__file__, "<frozen runpy>")
    first = found
    while first is not None and first.tb_frame.f_code.co_filename in ours:
        first = first.tb_next
    return first or found
