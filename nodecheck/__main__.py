"""`python -m nodecheck`."""

from nodecheck.cli import main

main()
