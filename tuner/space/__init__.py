"""The space of feasible configurations, and what one configuration means for compiler and device."""
