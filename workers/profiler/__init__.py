"""Hardware counters of one launch, read by Nsight Compute where it is there."""
