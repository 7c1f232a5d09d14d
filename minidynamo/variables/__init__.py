"""What can lie on the symbolic stack.  In pipeline order: `base` (the protocol), `constant`,
`containers`, `iterators`, `tensor`, `functions`, `objects` (instances, classes, modules), `builder`
(a real value and its source -> a variable)."""
