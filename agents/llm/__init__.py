"""Language models behind one port: recorded, by files, and (lazily) by network."""
