"""What a gate looks like to others: text, Markdown, JSON."""
