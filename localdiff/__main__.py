"""`python -m localdiff` is `localdiff`."""

from localdiff.cli import main

if __name__ == "__main__":
    main()
