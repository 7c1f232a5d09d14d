"""What fake tensors do not know of eager, asked of its kernels: both packages trace with this."""
