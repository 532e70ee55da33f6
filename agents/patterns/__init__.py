"""What earlier runs left for later ones: features of a kernel and what made it faster."""
