"""Where values come from (`sources`), what an entry assumes of them (`guards`), and what the
program has put in the place of torch's own functions (`originals`)."""
