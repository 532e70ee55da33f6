"""Device backends behind one port, alive only inside a bench child."""
