"""The loop IR: its operations, its loops, how a body is run, recorded, compared and verified."""
