"""The tables of the PyTorch 2 paper's section 6, measured with ours beside torch.compile."""
