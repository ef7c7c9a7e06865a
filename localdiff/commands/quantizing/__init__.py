"""The parts of `localdiff quantize`: where weights come from, what is planned, what it needs, what is shown."""
