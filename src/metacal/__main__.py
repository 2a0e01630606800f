"""``python -m metacal``: the command line, where the ``metacal`` program is not on the path."""

from metacal.cli import main

if __name__ == "__main__":
    main()
