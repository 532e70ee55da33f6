"""The composition root: command line, settings, driver, and the fleets that carry jobs."""
