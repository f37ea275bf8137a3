"""`parley journal`: an auditor's keys, and looking at, checking and thinning out journals."""
