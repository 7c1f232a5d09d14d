"""python -m benchmarks --suite NAME [--threads N] [--json FILE] [--only TEXT] [--jobs N]"""

import argparse
import sys

from .suites import SUITES

MODELS = ("transformers", "timm", "torchvision", "torchaudio")  # packages whose models are measured


def main(arguments: list[str] | None = None) -> int:
    """Run one suite.  arguments: the command line's, without the program's name."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--suite", default="smoke", choices=sorted(SUITES), help="what to run")
    parser.add_argument(
        "--threads", type=int, default=None, help="torch threads (default: torch's own choice)"
    )
    parser.add_argument(
        "--only",
        default="",
        help="run the rows whose ^NAME$ contains this, or one of several texts separated by ';'",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        help="processes at once, in the sweeps over models that measure no times",
    )
    parser.add_argument(
        "--json", default=None, help="also write the figures to this file, after every row"
    )
    parser.add_argument(
        "--nproc", type=int, default=None, help="--suite distributed: processes (default: GPUs)"
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="keep the rows of the --json file and go on behind them (census, distributed, paper,"
        " programs)",
    )
    parser.add_argument("--no-peer", action="store_true", help="leave torch.compile out")
    parser.add_argument("--columns", default="", help="--suite paper: of its columns, these")
    parser.add_argument(
        "--seconds",
        type=float,
        default=None,
        help="stop after so long (census, paper: 200; distributed: without limit)",
    )
    census = parser.add_argument_group("of --suite census and paper")
    census.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    census.add_argument("--part", default="grid", choices=["grid"])
    census.add_argument("--seed", type=int, default=0, help="draws the order of the cases")
    census.add_argument("--share", type=float, default=1.0, help="so much of them at most")
    census.add_argument("--row-seconds", type=float, default=None, help="paper: one row, at most")
    census.add_argument("--holdout", action="store_true", help="the cases held out, no others")
    census.add_argument("--peers", default=None, help="a result whose torch.compile times count")
    options = parser.parse_args(arguments)
    try:
        SUITES[options.suite](options)
    except ModuleNotFoundError as error:
        if error.name not in MODELS:
            raise
        needed = f"--suite {options.suite} needs the models of {error.name}"
        print(f"{needed}: pip install {error.name}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
