"""Coverage of what both packages share: whose an exception is."""
