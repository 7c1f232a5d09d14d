"""`python -m minidynamo explain script.py [arguments] -o page.html`: run a program, write its page.

In:   the command's arguments.   Out: the program's exit status, and one HTML file.

The program runs as `python script.py` would run it: as `__main__`, with its own `sys.argv` and its
folder on `sys.path`; it ends with its own exit status and traceback.  `-o` stands before the
program, or is the last of its arguments but one; a program that has an `-o` of its own gets it if
ours stands in front.
"""

import builtins
import os
import runpy
import sys
import types
from importlib.machinery import SourceFileLoader
from pathlib import Path

from . import trace
from .running import Looks

USAGE = """usage: python -m minidynamo explain [-o page.html] [options] script.py [arguments]
       python -m minidynamo explain [-o page.html] [options] -m module [arguments]
       ... -o page.html may also stand at the end; without it, the page is explain.html
       --measure   each kernel is timed, once, on copies of its arguments
       --assembly  the page has the innermost loops of each kernel as machine code"""
NOTHING = "nothing was compiled by minidynamo: decorate a function with @minidynamo.compile"
LOOKS = {"--measure": "measure", "--assembly": "assembly"}
OUTPUT = ("-o", "--output")


def main(arguments: list[str]) -> int:
    """Run the program that `arguments` name; the exit status that it would have had."""
    rest = list(arguments)
    output, is_module, looks = "", False, {}
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in OUTPUT and rest:
            output = rest.pop(0)
        elif option in LOOKS:
            looks[LOOKS[option]] = True
        elif option == "-m":
            is_module = True
            break
        else:
            print(USAGE, file=sys.stdout if option in ("-h", "--help") else sys.stderr)
            return 0 if option in ("-h", "--help") else 2
    if not output and len(rest) > 2 and rest[-2] in OUTPUT:
        *rest, _, output = rest
    if not rest:
        print(USAGE, file=sys.stderr)
        return 2
    program, *its_own = rest
    if not is_module and not Path(program).is_file():
        print(f"there is no file {program!r}", file=sys.stderr)
        return 2
    page = Path(output or "explain.html").absolute()
    if not page.parent.is_dir():
        print(f"there is no folder {str(page.parent)!r}", file=sys.stderr)
        return 2
    trace.start(page, program, Looks(**looks))
    status = run(program, its_own, is_module)
    if trace.STARTED[0].told():
        return status
    print(NOTHING, file=sys.stderr)
    return status or 1


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
