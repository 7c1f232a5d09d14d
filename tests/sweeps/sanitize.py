"""Generated kernels under the address and undefined-behaviour sanitizers: `make sanitize`.

In:   random graphs (graphs.py) and samples of OpInfos (ops.py).  Out: "clean", or the first report
      of a sanitizer.

    python tests/sweeps/sanitize.py --graphs 600 --ops 250

A child process runs with the sanitizer's library preloaded, so that torch's allocations have
guarded borders, and compiles every kernel with `-fsanitize=address,undefined`.  First it shows that
the check can fail: one kernel writes beyond its tensor, one shifts by too much.
"""

import argparse
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SANITIZE = (
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
    "-g1",
)
PLANTED = {
    "address": """extern "C" int NAME(void** args) {
    float* x = (float*)args[0];
    for (int64_t i = 0; i <= 100; i++) x[i] = 1.f;
    return 0;
}""",
    "undefined": """extern "C" int NAME(void** args) {
    int32_t* x = (int32_t*)args[0];
    x[0] = 1 << (x[1] + 40);
    return 0;
}""",
}


def use_sanitizers(folder):
    sys.path[:0] = [HERE, os.path.dirname(os.path.dirname(HERE))]
    import miniinductor.config
    from miniinductor import toolchain as build
    from miniinductor import toolchain as compiler

    flags = ("-O1" if flag == "-O3" else flag for flag in compiler.FLAGS)
    compiler.FLAGS = (*flags, *SANITIZE)
    miniinductor.config.cache_dir = folder
    return build


def child(options):
    build = use_sanitizers(options.folder)
    import torch

    torch.set_num_threads(2)
    if options.planted:
        [kernel] = build.build_kernels([(PLANTED[options.planted], "planted")])
        kernel(
            torch.zeros(100, dtype=torch.float32 if options.planted == "address" else torch.int32)
        )
        return
    import graphs
    import ops
    from torch.testing._internal.common_methods_invocations import op_db

    kernels = programs = samples = 0
    for start in range(0, options.graphs, 6):
        print(f"graphs {start} to {start + 5}", file=sys.stderr, flush=True)
        programs += 6
        for seed, problem in graphs.check(list(range(start, start + 6)), interpreter=False):
            print(f"seed {seed}: {problem}", flush=True)
    for op in op_db[:: max(1, len(op_db) // max(1, options.ops))] if options.ops else ():
        dtype = next(
            (
                d
                for d in (torch.float32, torch.int64, torch.bool)
                if d in op.supported_dtypes("cpu")
            ),
            None,
        )
        print(f"op {op.name}", file=sys.stderr, flush=True)
        for sample in ops.samples_of(op, dtype, 3) if dtype else ():
            try:
                run, record = ops.compile_ours(op, [sample])
                torch.manual_seed(ops.SEED)
                run()
            except Exception as error:  # a matter of `make ops`, not of this check
                print(f"{op.name}: {type(error).__name__}: {error}"[:200], flush=True)
                continue
            kernels, samples = kernels + len(record.kernels), samples + 1
    built = len([name for name in os.listdir(options.folder) if name.endswith(".so")])
    print(
        f"clean: {programs} random graphs, {samples} samples of ops ({kernels} kernels), "
        f"{built} shared objects",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(
        description="generated kernels under -fsanitize=address,undefined"
    )
    parser.add_argument("--graphs", type=int, default=600)
    parser.add_argument("--ops", type=int, default=250)
    parser.add_argument("--planted", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder:
        return child(options)
    libraries = [
        subprocess.run(
            [os.environ.get("CXX", "g++"), f"-print-file-name={name}"],
            capture_output=True,
            text=True,
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "LD_PRELOAD": ":".join(libraries),
            "OMP_NUM_THREADS": "2",
            "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:exitcode=99",
            "UBSAN_OPTIONS": "print_stacktrace=1:exitcode=99",
        }
        command = [sys.executable, os.path.abspath(__file__), "--folder", folder]
        command += ["--graphs", str(options.graphs), "--ops", str(options.ops)]
        for planted in PLANTED:
            seen = subprocess.run(
                [*command, "--planted", planted], env=environment, capture_output=True, text=True
            )
            if (
                not seen.returncode
                or "runtime error" not in seen.stderr
                and "AddressSanitizer" not in seen.stderr
            ):
                print(
                    f"the {planted} sanitizer did not see a planted error:\n{seen.stderr[-2000:]}"
                )
                return 1
        print("both planted errors are seen", flush=True)
        done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            print(done.stderr[-4000:])
        return done.returncode


if __name__ == "__main__":
    sys.exit(main())
