"""Every switch of minidynamo, with its default.  `config.patch(name=value)` sets some for a `with`
block.

    >>> with minidynamo.config.patch(recompile_limit=2):
    ...     ...

| MINI_DEBUG | prints on stderr |
|---|---|
| 1 | graph breaks, recompiles, skipped frames |
| 2 | + captured graphs and guards |

Mirrors torch/_dynamo/config.py.
"""

import os

from miniinductor.options import checked

# True: the compiler's own failures raise, where otherwise the frame runs eagerly
raise_internal_errors = False
# True: that a backend of the user's raises is recorded, and the frame runs eagerly, where otherwise
# the user's call raises `BackendError`
suppress_backend_errors = False
# entries per code object, and per module whose method it is; a call that fits none of so many runs
# as plain Python.  Half of them (at least 4) are enough as long as none has answered a second call
recompile_limit = 8
# instructions traced for one frame, inlined calls included; a longer one runs as plain Python
step_limit = 500_000
# guards of one frame; one that needs more (a list of a million numbers was read) runs as plain
# Python
guard_limit = 100_000
attempt_limit = 200  # restarts of one frame's analysis (one per graph break met)
# facts that are tried to answer the questions of one frame about symbolic sizes; then its sizes are
# taken as numbers (U-Nets and window attention need 100 to 2,000)
size_steps = 200_000
debug = int(os.environ.get("MINI_DEBUG", "0"))
# a folder: what this process compiles is written there as a page when it ends, explain/trace.py
trace_folder = os.environ.get("MINI_TRACE", "")

patch = checked(__name__)
