"""Every object of every stage says what it came from: over random programs and public models.

The oracle knows nothing of how origins are found.  Each line of a random program has a constant of
its own, which can be found again in the text of every stage: whatever shows it, down to a line of a
kernel, forward or backward, must lead to that line of the program, and to no other.

    make test-explorer                                  # 200 programs and 10 models
    pytest tests/explorer/provenance.py -k models
"""

import itertools
import json
import linecache
import random
import re

import pytest
import torch

import minidynamo
import miniinductor
from minidynamo.explain.data import Origins, schema

from . import models

SIZE = 6
# {a}, {b}: earlier values, SIZE x SIZE; {c}: the line's constant
LINES = (
    "{a} * {c}; {a}.sin() * {c}; torch.tanh({a} * {c}); ({a} + {b}) * {c}; "
    "{a} * {b} * {c}; torch.where({a} > {c}, {a}, {b}); "
    "{a} - {a}.mean(0, keepdim=True) * {c}; torch.softmax({a} * {c}, -1); "
    "({a} * {c}) @ {b}; ({a} @ {b}.t()) * {c}; {a}.cumsum(1) * {c}; "
    "helper({a}, {c}); outer_helper({a}, {c}); {a}.t() * {c}; "
    "torch.cat([{a}[:2], {b}[2:] * {c}]); {a}.amax(1, keepdim=True) * {c} + {b}; "
    "torch.nn.functional.layer_norm({a} * {c}, ({n},)); "
    "torch.nn.functional.gelu({a} * {c}); {a}[torch.arange({n}).flip(0)] * {c}; "
    "{a}.clone().mul_({c}); {a}.flip(1).expand(2, {n}, {n})[1] * {c}; "
    "torch.nn.functional.pad({a}, (1, 0))[:, 1:] * {c}"
).split("; ")
PRELUDE = """\
def helper(x, constant):
    return torch.relu(x * constant)

def outer_helper(x, constant):
    y = helper(x, constant)
    return y.exp().clamp(max=2.0)

"""
CALLED = {"helper": {2}, "outer_helper": {2, 5, 6}}  # the lines that are run for a call
NUMBERS = itertools.count()
# kind -> (options of compile, options of miniinductor)
SETTINGS = {
    "inference": ({}, {}),
    "training": ({}, {}),
    "dynamic": ({"dynamic": True}, {}),
    "triton": ({}, {"cpu_backend": "triton"}),
    "templates": ({}, {"cpu_backend": "triton", "matmul_templates": "always"}),
}


# --- programs -------------------------------------------------------------------------------------
def random_program(rng):
    """(text, {constant: lines of the text that may compute with it})"""
    body, owners = [], {}
    first = PRELUDE.count("\n") + 1
    for number in range(1, rng.randrange(4, 9)):
        # exact in float32, so that a kernel shows the same digits
        constant = rng.randrange(600, 1023) / 1024 + 2.0 ** -(14 + number)
        values = {
            "a": f"v{rng.randrange(max(0, number - 2), number)}",
            "b": f"v{rng.randrange(number)}",
        }
        text = rng.choice(LINES).format(**values, c=constant, n=SIZE)
        body.append(f"    v{number} = {text}")
        owners[constant] = {first + number, *CALLED.get(text.partition("(")[0], ())}
    head = [PRELUDE.rstrip("\n"), "", "def program(v0):"]
    last = f"    return v{len(body)}.sum(), v{max(1, len(body) - 1)}.cos()"
    return "\n".join([*head, *body, last, ""]), owners


def function_of(text):
    """The program, and the name of its file, which inspect knows."""
    name = f"<program {next(NUMBERS)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope = {"torch": torch}
    exec(compile(text, name, "exec"), scope)
    return scope["program"], name


def explained(function, kind, *arguments):
    """The document of a call, and of its gradients."""
    training, (options, switches) = kind == "training", SETTINGS[kind]
    with torch.set_grad_enabled(training), miniinductor.config.patch(**switches):
        e = minidynamo.explain(function, **options)(*arguments)
        if training:
            results = [t for t in e.result if t.requires_grad]
            sum(result.sum() for result in results).backward()
    return e.to_json()


def document_of(text, kind):
    function, name = function_of(text)
    x = torch.rand(SIZE, SIZE, requires_grad=kind == "training") + 0.1
    return explained(function, kind, x), name


# --- what must hold of every document -------------------------------------------------------------
def check(document):
    """Schema, ids, and an origin or a reason for everything."""
    check_schema(document)
    ids = [one["id"] for one in objects(document)]
    assert len(ids) == len(set(ids)), "ids are not unique"
    known, origins = set(ids), Origins(document)
    assert json.loads(json.dumps(document)) == document
    for frame in document["frames"]:
        for entry in frame["entries"]:
            for stage in entry["stages"]:
                check_stage(stage, entry, known, origins)
            check_rows(entry, known)


def check_rows(entry, known):
    """Guards, saved values, kernels, fusions, memory, eager kernels."""
    for guard in entry["guards"]:
        assert guard["origins"] or guard["reason"], guard
    named = [saved["node"] for saved in entry["saved"]]
    named += [entry["recompiled_because"]["guard"]] if entry["recompiled_because"] else []
    named += [life["buffer"] for memory in entry["memory"] for life in memory["lives"]]
    for rows in (entry["kernels"], entry["fusions"]):
        named += [one for row in rows for one in row["nodes"]]
    named += [one for row in entry["eager_kernels"] for one in row["origins"] if "/" in one]
    assert all(one in known for one in named), [one for one in named if one not in known]
    assert all(row["origins"] for row in entry["eager_kernels"])


def check_schema(document):
    pytest.importorskip("jsonschema").validate(document, schema())


def objects(document):
    for frame in document["frames"]:
        yield frame
        yield from frame["breaks"]
        for entry in frame["entries"]:
            yield entry
            for name in ("guards", "fusions", "saved", "eager_kernels"):
                yield from entry[name]
            for memory in entry["memory"]:
                yield from memory["lives"]
            for stage in entry["stages"]:
                yield stage
                yield from stage["nodes"]


def check_stage(stage, entry, known, origins):
    assert stage["id"].startswith(entry["id"] + "/")
    assert len(stage["lines"]) == len(stage["text"].split("\n")), stage["id"]
    assert all(one in known for ids in stage["lines"] for one in ids)
    for node in stage["nodes"]:
        where = (node["id"], node["op"])
        assert node["id"].startswith(stage["id"] + "/")
        assert node["origins"] or node["reason"], where
        for one in node["origins"]:
            assert one in known or "/" not in one, (where, one)
        ended = origins.lines(node["id"]) or ends_in_reason(node["id"], origins)
        assert not node["origins"] or ended, where
    if stage["kind"] == "kernel":
        check_kernel(stage, origins)


def ends_in_reason(name, origins):
    """Does it come from an object with a stated reason, such as an input?"""
    return any(origins.reasons.get(one) for one in origins.all(name))


def check_kernel(stage, origins):
    """A line that names a value or stores one computes something, so it has an origin."""
    for text, ids in zip(stage["text"].split("\n"), stage["lines"]):
        if re.search(r"\b(tmp|acc)\d+ = |^\s*out\d+\[", text):
            assert ids and all(origins.lines(one) for one in ids), (stage["id"], text)


# --- the oracle -----------------------------------------------------------------------------------
def check_lines(document, name, owners, text):
    """Whatever shows a line's constant comes from that line; and how many such lines there were."""
    origins, files = Origins(document), {one["id"]: one for one in document["files"]}
    program = next(key for key, one in files.items() if one["path"] == name)
    seen = {}
    for stage in stages(document):
        if stage["kind"] in ("bytecode", "replacement", "wrapper"):
            continue
        for line, ids in zip(stage["text"].split("\n"), stage["lines"]):
            if line.lstrip().startswith(("#", "//")):
                continue
            for constant in [c for c in owners if shows(line, c)]:
                for one in ids:
                    found = {
                        int(at.partition(":")[2])
                        for at in origins.lines(one)
                        if at.startswith(f"{program}:")
                    }
                    kind = (stage["kind"], stage["direction"])
                    assert found and found <= owners[constant], (one, line, found, constant, text)
                    seen[kind] = seen.get(kind, 0) + 1
    return seen


def shows(line, constant):
    return re.search(rf"(?<![\w.]){re.escape(repr(constant))}f?(?![\w.])", line)


def stages(document):
    for frame in document["frames"]:
        for entry in frame["entries"]:
            yield from entry["stages"]


def check_program(seed, kind):
    text, owners = random_program(random.Random(seed))
    document, name = document_of(text, kind)
    check(document)
    return check_lines(document, name, owners, text)


PROGRAMS = 40  # of each kind


@pytest.mark.parametrize("kind", SETTINGS)
def test_whatever_shows_a_constant_comes_from_its_line(kind):
    seen = {}
    for seed in range(1000, 1000 + PROGRAMS):
        for place, count in check_program(seed, kind).items():
            seen[place] = seen.get(place, 0) + count
    assert {"fx", "aten", "loop_ir", "fused", "kernel"} <= {place[0] for place in seen}, seen
    if kind == "training":
        assert seen["kernel", "backward"] and seen["joint", "forward"]


@pytest.mark.parametrize("name", models.MODELS)
def test_models(name):
    check(models.MODELS[name]())
