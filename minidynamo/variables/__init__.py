"""What can lie on the symbolic stack.  In pipeline order: `base` (the protocol), `constant`,
`sequences`, `containers`, `functions`, `objects`, `iterators`, `classes`, `symbolic`, `tensor`,
`modules`; then from reality to variables: `lookup`, `registry`, the `wrap_` files, `builder`.  In
`more/` lie kinds of values that fewer programs have."""
