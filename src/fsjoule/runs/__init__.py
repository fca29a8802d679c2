"""One run put together: its request, its session, its pairs, its gate."""
