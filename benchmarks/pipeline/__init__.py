"""How fast journals become tables: `python -m benchmarks.pipeline`.

Journals are made of real sessions (`journals`), the same work is done by Spark and by a
plain pool of processes (`plain`), and `__main__` runs them side by side.
"""
