"""Microbenchmarks. What stands in `workers/` runs inside the renter's interpreter, by itself."""
