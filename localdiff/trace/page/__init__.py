"""A trace as one HTML file that explains itself and needs nothing else."""
