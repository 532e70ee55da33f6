"""Campaigns: many specs, one after the other or side by side, with one budget and one report."""
