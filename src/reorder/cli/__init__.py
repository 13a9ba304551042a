"""The command line: arguments only."""
