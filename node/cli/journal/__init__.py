"""`parley journal`: create auditors' keys; inspect, verify, export and prune journals."""
