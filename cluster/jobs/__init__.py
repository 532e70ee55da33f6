"""What runs on a Ray cluster besides the fleets: the driver, jobs, and reports of nodes."""
