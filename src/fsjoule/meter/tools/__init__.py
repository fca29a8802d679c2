"""What one does with a meter at a desk."""
