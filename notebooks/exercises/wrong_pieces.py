"""Wrong pieces of the student's own compiler: the reference with one plausible mistake in it.

In:   nothing.  Out: WRONG_PIECES, {piece: {what is wrong: (text of the reference, what stands there
      instead, the row of `check_piece` that says so)}}.

A test makes each mistake and asks for the check (`tests/test_own_compiler.py`).  The students'
tree does not have this file.
"""

Mistake = tuple[str, str, str]

WRONG_PIECES: dict[str, dict[str, Mistake]] = {
    "autograd": {
        "a size of 1 is not summed": (
            "if own == 1 and size != 1",
            "if False",
            "of what had size 1",
        ),
        "the quotient is differentiated as 1 / b": (
            "fit(-g * node / b, b)",
            "fit(-g / b, b)",
            "a product, and a quotient",
        ),
        "a product's factors are not fitted": (
            "return fit(g * b, a), fit(g * a, b)",
            "return g * b, g * a",
            "of what was broadcast",
        ),
        "each of the largest gets all": (
            "_spread(g, node) / count",
            "_spread(g, node)",
            "equal ones share it",
        ),
        "the matrix of a batch gets a batch": (
            "return fit(g @ b.transpose(-1, -2), a)",
            "return g @ b.transpose(-1, -2)",
            "one matrix, many others",
        ),
        "the last use wins": (
            "gradient[node] + amount if node in gradient else amount",
            "amount",
            "a sum goes to both",
        ),
        "what backward reads is saved": (
            'if (n, "in") in before and (n, "out") not in before',
            "if n not in backward and any(n in m.inputs for m in backward)",
            "nothing is saved that the input gives",
        ),
        "a product is computed again": (
            "if node.op not in CHEAP:",
            'if node.op == "input":',
            "a product is not computed twice",
        ),
        "values are counted, not bytes": (
            "bytes_of(node) + 1",
            "1",
            "two narrow values are saved rather than a wide one",
        ),
    },
    "loops": {
        "permuted the other way round": (
            "tuple(index[order.index(dim)] for dim in range(len(order)))",
            "tuple(index[dim] for dim in order)",
            "three dimensions change places",
        ),
        "only the outermost operation reads": (
            "[load for arg in value.args for load in loads(arg)]",
            "[arg for arg in value.args if isinstance(arg, Load)]",
            "an operation inside an operation reads, too",
        ),
        "a reduction has the rows of its result": (
            "rows, columns = x.shape[:-1], x.shape[-1]",
            "rows, columns = node.shape, x.shape[-1]",
            "so is one whose result has the dimension still",
        ),
        "a reduction reads its first column": (
            '*(f"i{n}" for n in range(len(rows))), "c")\n        value = self.element',
            '*(f"i{n}" for n in range(len(rows))), "0")\n        value = self.element',
            "its value is an element of the argument",
        ),
        "what is stored is stored again": (
            "if node not in self.stored:",
            "if True:",
            "a reduction is a loop that keeps its row",
        ),
    },
    "fusion": {
        "no walk to a third": (
            "waiting = [unit for unit in self.before(second) if unit is not first]",
            "waiting = []",
            "nothing is fused around a product that lies between",
        ),
        "the direct step counts": (
            "waiting = [unit for unit in self.before(second) if unit is not first]",
            "waiting = self.before(second)",
            "a softmax is one kernel",
        ),
        "whatever row is read": (
            "if maker and (load.buffer.base or load.index[: len(maker.rows)] != own_row(maker)):",
            "if False:",
            "a reader of other rows is not fused",
        ),
        "rows may differ": (
            "if [text_of(n) for n in first.rows] != [text_of(n) for n in second.rows]:",
            "if False:",
            "sums of rows and of columns are two kernels",
        ),
        "the fewest bytes first": (
            "key=lambda pair: -pair[0]",
            "key=lambda pair: pair[0]",
            "a softmax has four pairs that share bytes; the most come first",
        ),
        "neighbours only": (
            "in kernels[place + 1 :]",
            "in kernels[place + 1 : place + 2]",
            "a softmax has four pairs that share bytes; the most come first",
        ),
        "only what flows": (
            "touched = {*first.writes, *first.reads}",
            "touched = {*first.writes}",
            "two loops over x share its bytes: 4 rows, 8 columns, 4 bytes each",
        ),
        "in the order in which they stand": (
            "for unit in self.units:\n            visit(unit)\n        return result",
            "return self.units",
            "what is fused runs before the product that reads it",
        ),
    },
    "cpp": {
        "a walk for each loop": (
            "if not found or not found[-1].takes(loop):",
            "if True:",
            "a softmax walks over its columns three times",
        ),
        "one walk for all": (
            "if not found or not found[-1].takes(loop):",
            "if not found:",
            "a softmax walks over its columns three times",
        ),
        "all is stored": (
            "{buffer for buffer in kernel.writes if buffer in read_elsewhere}",
            "{*kernel.writes}",
            "of its four results two lie in memory",
        ),
        "results of reductions are stored": (
            "- here - reduced",
            "- here",
            "of its four results two lie in memory",
        ),
        "no threads": (
            'lines.append(f"    #pragma omp parallel for collapse({len(rows)})")',
            "pass",
            "one pragma for all dimensions of the rows",
        ),
        "threads for the first dimension only": (
            " collapse({len(rows)})",
            "",
            "one pragma for all dimensions of the rows",
        ),
        "a partial result is lost": ("int lane = 1;", "int lane = 2;", "sums and largest elements"),
        "the row's result is not remembered": (
            "self.row_values[Load(loop.buffer, element_index(loop))] = row",
            "pass",
            "results of the row are used in it",
        ),
        "the first dimension lies closest": (
            "({offset} * {text_of(size)} + {position})",
            "({offset} + {text_of(size)} * {position})",
            "element (1, 2, 3) of 2 x 3 x 4 is number 23",
        ),
    },
    "gpu": {
        "a store without a mask": (
            'mask = "" if loop.reduction else ", mask=inside"',
            'mask = ""',
            "a layer norm in the interpreter",
        ),
        "nothing is divided": ('rest = f"({rest} // {size})"', "pass", "rows of two dimensions"),
        "no name is remembered": (
            "self.made[Load(loop.buffer, element_index(loop))] = name",
            "pass",
            "a layer norm in the interpreter",
        ),
        "the mask is the block": (
            "inside = c < {text_of(loop.columns)}",
            "inside = c < BLOCK",
            "a mask keeps out what lies beyond the last column",
        ),
        "the first dimension lies closest": (
            "({text} * {text_of(size)} + {position})",
            "({text} + {text_of(size)} * {position})",
            "an element in a row of 8",
        ),
    },
}
