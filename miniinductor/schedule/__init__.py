"""Which loop nests become one kernel, in which order, and which write into their inputs."""
