"""What a run looks like to others: text, JSON, charts and a page. Takes model objects; reads no results from files."""
