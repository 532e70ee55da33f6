"""The space of feasible configurations, and what one of them means for compiler and device."""
