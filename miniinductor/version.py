"""The version of both packages, which are one distribution: the only place where it stands."""

__version__ = "0.1.0"
