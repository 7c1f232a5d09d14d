"""--suite compile-time: seconds of the first call, CPU (with the compilers it starts) and wall, a
fresh process for every figure.

Cold: empty caches.  Warm: the same folder again, in another process.  The first call includes
whatever the compiler imports then; importing torch, the package and building the model come before
it and are the column "before".  The last column is a second small graph in the same process,
nothing of it on disk.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from .common import Options, Row, suite, wanted

CHILD = """
import json, os, sys
import torch, minidynamo
from benchmarks.models import bert, gpt2
from benchmarks.runner import cpu_seconds, peer_compile, timed_first_call
who, what, threads = sys.argv[1:]
torch.set_num_threads(int(threads))
compiler = {"ours": minidynamo.compile, "peer": peer_compile}[who]
def small(x, y): return torch.relu(x * 2 + y).sum(1)
def another(x, y): return torch.softmax(x * 3 - y, 1) + y
x = torch.randn(64, 64)
of_tensors = lambda: (small, dict(x=x, y=x))
function, inputs = {"small": of_tensors, "BERT": bert, "GPT-2": gpt2}[what]()
with torch.no_grad():
    function(**inputs)
    before = cpu_seconds()
    _, first = timed_first_call(lambda: compiler(function)(**inputs))
    _, second = timed_first_call(lambda: compiler(another)(x, x))
print(json.dumps(dict(before=before, wall=first.wall, cpu=first.cpu, again=second.cpu)))
"""


def first_call(who: str, what: str, folder: str, threads: int) -> Row:
    """The figures of one fresh process whose caches lie in `folder`."""
    environment = dict(
        os.environ,
        MINIINDUCTOR_CACHE=os.path.join(folder, "ours"),
        TORCHINDUCTOR_CACHE_DIR=os.path.join(folder, "peer"),
    )
    done = subprocess.run(
        [sys.executable, "-c", CHILD, who, what, str(threads)],
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{who} failed on {what}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


@suite("compile-time")
def compile_time(options: Options, result: Row) -> Iterator[Row]:
    """Compile times, cold and warm, in fresh processes."""
    print(
        f"{'':8}{'':6}{'':6}{'before CPU s':>14}{'first call CPU s':>18}{'wall s':>9}"
        f"{'a second graph CPU s':>22}"
    )
    for what in ("small", "BERT", "GPT-2"):
        if not wanted(what, options):
            continue
        seconds = {}
        for who in ("ours",) if options.no_peer else ("ours", "peer"):
            with tempfile.TemporaryDirectory(prefix="minidynamo-bench-") as folder:
                for state in ("cold", "warm"):
                    row = first_call(who, what, folder, options.threads or 1)
                    seconds[who, state] = row["cpu"]
                    print(
                        f"{what:8}{who:6}{state:6}{row['before']:14.2f}{row['cpu']:18.2f}"
                        f"{row['wall']:9.2f}{row['again']:22.2f}",
                        flush=True,
                    )
                    yield dict(row, name=what, compiler=who, caches=state)
        if not options.no_peer:
            print(
                f"{what:8}ours / peer: "
                + ", ".join(
                    f"{s} {seconds['ours', s] / seconds['peer', s]:.3f}" for s in ("cold", "warm")
                )
            )
