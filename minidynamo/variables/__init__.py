"""What can lie on the symbolic stack.  In pipeline order: `base` (the protocol), `constant`,
`containers`, `iterators`, `symbolic`, `tensor`, `functions`, `classes`, `objects`, `modules`; then
from reality to variables: `lookup`, `registry`, the `wrap_` files, `builder`.  `more/` is
coverage."""
