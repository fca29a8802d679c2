"""Byte streams to a meter, and what listens to them."""
