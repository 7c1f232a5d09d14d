"""Every generator at once, for a time: `make soundness`.

    python -m tests.soundness --seconds 600 --jobs 16 [--logs folder] [--first SEED]

Prints a line for each generator and keeps its differences in the folder.  Exit status 3 if there
are any.
"""

import argparse
import subprocess
import sys
from pathlib import Path

# generator -> (share of the processes, options)
GENERATORS: dict[str, tuple[int, str]] = {
    **dict.fromkeys("absence change_state class_code custom_functions endless".split(), (1, "")),
    **dict.fromkeys("functions hooks identity randomness subclasses".split(), (1, "")),
    **dict.fromkeys(("c_objects", "change"), (2, "")),
    **dict.fromkeys(("aliases",), (1, "--count 100000")),
    **dict.fromkeys(("foreign", "tensors"), (1, "--count 10000")),
    **dict.fromkeys(("gradients", "names"), (2, "--count 10000")),
    "errors": (2, "--count 200000"),
    "graphs": (2, "--count 20000 --modes inductor,triton"),
    "layouts": (2, "--count 100000"),
    "writes": (2, "--count 10000 --modes aot_eager,inductor,inductor-dynamic,inductor-training"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--jobs", type=int, default=16)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--logs", default="soundness-logs")
    parser.add_argument("--only", default="", help="generators, separated by commas")
    options = parser.parse_args()
    chosen = options.only.split(",") if options.only else list(GENERATORS)
    shares = sum(GENERATORS[name][0] for name in chosen)
    folder = Path(options.logs)
    folder.mkdir(parents=True, exist_ok=True)
    running = []
    for name in chosen:
        share, more = GENERATORS[name]
        jobs = max(1, round(options.jobs * share / shares))
        command = [sys.executable, "-m", f"tests.soundness.{name}", *more.split()]
        command += ["--seconds", str(options.seconds), "--jobs", str(jobs), "--stop", "1000"]
        command += ["--first", str(options.first)]
        log = (folder / f"{name}.log").open("w")
        running.append((name, subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)))
    worst = 0
    for name, process in running:
        worst = max(worst, process.wait())
        lines = (folder / f"{name}.log").read_text().strip().splitlines()
        print(lines[-1] if lines else f"{name}: no output", flush=True)
    sys.exit(worst)


if __name__ == "__main__":
    main()
