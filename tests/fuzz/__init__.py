"""A campaign of bad input: seeded, bounded, every failure can be replayed. See docs/reliability.md."""
