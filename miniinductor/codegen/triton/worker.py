"""Compiles Triton kernels in a process of its own: several of these run side by side.

In:   one JSON object per line: {"path", "name", "signature", "constants", "num_warps", ...,
      "capability"}.
Out:  one line per job: {"error": text}, or the machine code in base64 and what a launch needs to
      know, {"code", "about"}; and the other kinds of code that the job asks for ("ptx").  Needs no
      GPU: the target is named.

    python worker.py < jobs

    {"path": "/cache/triton_ab12.py", "name": "relu_kernel", "aligned": ["in0", "out0"],
     "signature": {"in0": "*fp32", "out0": "*fp32", "XBLOCK": "constexpr"},
     "constants": {"XBLOCK": 1024}, "num_warps": 4, "num_stages": 1, "asserts": false,
     "capability": 90, "triton_cache": "/cache/triton"}

The first names are the kernel's file and function; "aligned" are the arguments that are multiples
of 16; "asserts" says whether the kernel checks indices, and "capability" is the GPU's.

Runs as a plain script, without this package (and without torch): starting it takes a third of a
second. Mirrors torch/_inductor/compile_worker.
"""

import base64
import contextlib
import json
import os
import runpy
import sys
from typing import Any


def compile_job(job: dict[str, Any]) -> dict[str, Any]:
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
    code = base64.b64encode(compiled.asm["cubin"]).decode()
    others = {kind: compiled.asm[kind] for kind in job.get("kinds", ())}
    return {"code": code, "about": about, **others}


def main() -> None:
    with contextlib.suppress(Exception):  # an error is the first job's to tell
        from triton.runtime import cache

        cache.triton_key()  # a hash of all of Triton, which each process takes once
    for line in sys.stdin:
        try:
            answer = compile_job(json.loads(line))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:4000]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
