"""Memory and race checkers over a candidate's launches: tools, their launcher, their findings."""
