"""Where values come from (`sources`), and what an entry assumes of them (`guards`)."""
