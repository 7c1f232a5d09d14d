"""Graph passes; graph_passes.py has their list."""
