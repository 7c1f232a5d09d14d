"""The quick part of `make test-explorer`: origins of every object of a few programs and models."""

import pytest
import torch
from explorer import models, provenance

import minidynamo
import miniinductor
from minidynamo.explain.data import Origins, document


@pytest.mark.parametrize("kind", provenance.SETTINGS)
def test_whatever_shows_a_constant_comes_from_its_line(kind):
    seen = provenance.check_program(seed=3, kind=kind)
    assert {"fx", "aten", "loop_ir", "fused", "kernel"} <= {place for place, _ in seen}


@pytest.mark.parametrize("name", ["mlp_training", "optimizer_step", "breaks_and_recompilations"])
def test_everything_has_an_origin_or_a_reason(name):
    provenance.check(models.MODELS[name]())


def two_lines(x):
    y = torch.exp(x) * 2.0
    return y.sum(-1)


def stage_of(document, name):
    [entry] = document["frames"][0]["entries"]
    return next(stage for stage in entry["stages"] if stage["id"].endswith(name))


def test_an_instruction_leads_to_the_lines_of_a_kernel_and_back():
    found = minidynamo.explain(two_lines)(torch.rand(4, 4)).to_json()
    first, last = two_lines.__code__.co_firstlineno + 1, two_lines.__code__.co_firstlineno + 2
    origins, lines = Origins(found), {}
    kernel = next(s for s in found["frames"][0]["entries"][0]["stages"] if s["kind"] == "kernel")
    for text, [name] in zip(kernel["text"].split("\n"), kernel["lines"]):
        lines[text.strip()] = {int(line.partition(":")[2]) for line in origins.lines(name)}
    exps = [found for text, found in lines.items() if "mini::exp(" in text]
    assert exps and all(found == {first} for found in exps)
    assert [found for text, found in lines.items() if text.startswith("out0[")] == [{last}]
    instructions = {node["name"]: node["op"] for node in stage_of(found, "/bytecode")["nodes"]}
    [exp] = [node for node in stage_of(found, "/fx")["nodes"] if node["op"] == "exp"]
    [instruction] = [one for one in exp["origins"] if "/bytecode/" in one]
    assert instructions[instruction.rpartition("/")[2]].startswith("CALL")


def test_the_lines_of_a_template_come_from_the_product_and_from_what_follows_it():
    def f(a, b, c):
        y = torch.addmm(c, a, b)
        return torch.relu(y) * 0.625

    arguments = torch.randn(32, 16), torch.randn(16, 48), torch.randn(48)
    switches = {"cpu_backend": "triton", "matmul_templates": "always"}
    with torch.no_grad(), miniinductor.config.patch(**switches):
        found = minidynamo.explain(f)(*arguments).to_json()
    provenance.check(found)
    first, lines, origins = f.__code__.co_firstlineno, {}, Origins(found)
    [kernel] = [s for s in found["frames"][0]["entries"][0]["stages"] if s["kind"] == "kernel"]
    for text, [name] in zip(kernel["text"].split("\n"), kernel["lines"]):
        lines[text] = [int(line.partition(":")[2]) - first for line in origins.lines(name)]
    assert [at for text, at in lines.items() if "tl.dot(" in text] == [[1]]
    assert [at for text, at in lines.items() if " * 0.625" in text.partition("#")[0]] == [[2]]


def test_a_program_without_source_and_with_html_in_its_names_gives_a_document():
    scope = {"torch": torch}
    exec(compile("def f(x):\n    return x + 1\n", "<b>&\"'</b>", "exec"), scope)
    found = minidynamo.explain(scope["f"])(torch.ones(2)).to_json()
    provenance.check(found)
    assert found["frames"][0]["source"] == ""
    assert any(one["path"] == "<b>&\"'</b>" for one in found["files"])


def test_a_recompilation_names_the_guard_that_failed():
    e = minidynamo.explain(two_lines, dynamic=False).calls([(torch.ones(2, 3),), (torch.ones(4),)])
    found = e.to_json()
    provenance.check(found)
    first, second = found["frames"][0]["entries"]
    because = second["recompiled_because"]
    [guard] = [one for one in first["guards"] if one["id"] == because["guard"]]
    assert guard["line"] == because["line"] and because["expected"] != because["actual"]


def test_what_a_function_does_without_a_graph_is_a_document_too():
    provenance.check(document(minidynamo.explain(lambda: 3)()))
