"""python -m benchmarks --suite NAME [--threads N] [--json FILE] [--only TEXT] [--jobs N]"""

import argparse
import difflib
import sys

from .suites import SUITES

# packages whose models are measured, or that are measured themselves
PACKAGES = ("transformers", "timm", "torchvision", "torchaudio", "jax")


def make_parser() -> argparse.ArgumentParser:
    lines = [f"  {name:14} {first_line(SUITES[name].__doc__)}" for name in sorted(SUITES)]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog="\n".join(["suites:", *lines]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--suite", default="smoke", metavar="NAME", help="what to run: one of the suites below")
    add("--threads", type=int, help="torch threads (default: torch's own choice)")
    add("--only", default="", help="rows whose ^NAME$ contains this, or one of several, by ';'")
    add("--json", metavar="FILE", help="also write the figures to this file, after every row")
    add("--no-peer", action="store_true", help="leave torch.compile out")
    several = parser.add_argument_group("of census, distributed, paper and programs")
    add = several.add_argument
    add("--resume", action="store_true", help="keep the rows of the --json file, go on behind them")
    add("--jobs", type=int, default=1, help="processes that compile at once (census, paper)")
    add("--seconds", type=float, help="stop after so long (census, paper: 200; distributed: never)")
    add("--nproc", type=int, help="distributed: processes (default: GPUs)")
    add("--device", default="cpu", choices=["cpu", "cuda"], help="census, paper: where")
    add("--seed", type=int, default=0, help="census, paper: draws the order")
    add("--share", type=float, default=1.0, help="census: so much of the cases at most")
    add("--holdout", action="store_true", help="census: the cases held out, no others")
    add("--columns", default="", help="paper: these of its columns, separated by ';'")
    add("--row-seconds", type=float, help="paper: one row, at most")
    return parser


def first_line(docstring: str | None) -> str:
    return (docstring or "").split("\n")[0].rstrip(".")


def main(arguments: list[str] | None = None) -> int:
    """Run one suite.  arguments: the command line's, without the program's name."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.suite not in SUITES:
        near = difflib.get_close_matches(options.suite, SUITES, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(SUITES))}"
        parser.error(f"no suite {options.suite!r}: {hint}")
    try:
        SUITES[options.suite](options)
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        needed = f"--suite {options.suite} needs {error.name}"
        print(f"{needed}: pip install {error.name}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
