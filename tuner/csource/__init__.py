"""One reader of C-like source: signatures, macros, index expressions."""
