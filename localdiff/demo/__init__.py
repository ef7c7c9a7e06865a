"""The small checkpoint that ships with the package: its data, its training and its evaluation."""
