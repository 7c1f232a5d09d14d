"""The FX graph under construction: nodes, inputs, and the state of the thread that it changes."""
