"""The cache: entries that are whole or built again."""
