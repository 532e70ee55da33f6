"""Search strategies on top of Hyperopt, behind one ask/tell port."""
