"""What runs when a compiled graph is called: building and loading kernels (`build`), calling them
(`launch`)."""
