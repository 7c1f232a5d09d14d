"""What makes capture faster or more forgiving, and could be deleted: see `minidynamo.coverage`."""
