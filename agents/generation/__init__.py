"""Generation: from a kernel to a template of it, mechanically or by a language model."""
