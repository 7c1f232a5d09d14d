"""Graph passes that only make programs faster; each enters itself in graph_passes.py."""
