"""Connection limits, trust policies, accept hooks, known peers and accounts."""
