"""Compiles Triton kernels in a process of its own: several of these run side by side.

In:   one JSON object per line: {"path", "name", "signature", "constants", "num_warps", ...,
      "capability", "cubin"}.
Out:  one line per job, {} or {"error": text}; the machine code is written to `cubin`, with what a
      launch needs to know beside it.  Needs no GPU: the target is named.

    python worker.py < jobs

Runs as a plain script, without this package (and without torch): starting it takes a third of a
second. Mirrors torch/_inductor/compile_worker.
"""

import contextlib
import json
import os
import runpy
import sys
from typing import Any


def compile_job(job: dict[str, Any]) -> None:
    os.environ["TRITON_CACHE_DIR"] = job["triton_cache"]
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = runpy.run_path(job["path"])[job["name"]]
    attributes = {
        (i,): [["tt.divisibility", 16]]
        for i, name in enumerate(job["signature"])
        if name in job["aligned"]
    }
    source = ASTSource(
        fn=function, signature=job["signature"], constexprs=job["constants"], attrs=attributes
    )
    options = {  # fusion: a * b + c is one FMA, as in nvcc's kernels
        "num_warps": job["num_warps"],
        "num_stages": job["num_stages"],
        "enable_fp_fusion": True,
    }
    if job["asserts"]:
        options |= {"debug": True, "sanitize_overflow": False}
    compiled = triton.compile(
        source, target=GPUTarget("cuda", job["capability"], 32), options=options
    )
    about = {
        "name": compiled.metadata.name,
        "shared": compiled.metadata.shared,
        "threads": 32 * compiled.metadata.num_warps,
    }
    temporary = f"{job['cubin']}.{os.getpid()}"
    folder = os.path.dirname(os.path.abspath(temporary))
    os.makedirs(folder, mode=0o700, exist_ok=True)  # it may be gone by now
    with open(temporary, "wb") as file:
        file.write(json.dumps(about).encode() + b"\n" + compiled.asm["cubin"])
    os.replace(temporary, job["cubin"])  # a reader sees a whole file or none
    for kind in job.get("keep", ()):
        with open(f"{job['cubin']}.{kind}", "w") as file:
            file.write(compiled.asm[kind])


def main() -> None:
    with contextlib.suppress(Exception):  # an error is the first job's to tell
        from triton.runtime import cache

        cache.triton_key()  # a hash of all of Triton, which each process takes once
    for line in sys.stdin:
        try:
            compile_job(json.loads(line))
            answer = {}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:4000]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
