"""What a history of facts comes to: pure functions."""
