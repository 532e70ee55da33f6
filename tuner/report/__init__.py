"""What a run found: result, tables, and the exported kernel."""
