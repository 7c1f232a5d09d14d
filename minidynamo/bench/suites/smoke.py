"""--suite smoke: every workload and model once: ratios, compile times, per-call overhead."""
import torch

import minidynamo

from .common import format_row, machine, measure, rows, suite


@suite("smoke")
def smoke(options):
    """Every workload and model once."""
    if options.threads:
        torch.set_num_threads(options.threads)
    about = machine()
    print(", ".join(f"{key} {value}" for key, value in about.items()), flush=True)
    print("ratios are medians over interleaved rounds [quartiles]; above 1: the second is faster\n")
    print(f"{'':20} {'eager':>10} {'ours':>10} {'peer':>10}   {'eager / ours':21} {'eager / peer':21} {'peer / ours':21} "
          f"{'compile s (CPU s): ours':>24} {'peer':>15} {'difference':>10}")
    result = []
    with torch.no_grad():
        for name, function, args, kwargs in rows(options.only):
            row = measure(name, function, args, kwargs, peer=not options.no_peer)
            result.append(row)
            print(format_row(row), flush=True)
    minidynamo.reset()
    return {"machine": about, "command": f"python -m minidynamo.bench --suite {options.suite}", "rows": result}
