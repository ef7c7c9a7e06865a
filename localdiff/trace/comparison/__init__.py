"""Two traces held against each other: where they part, what that costs, and which tokens end up others."""
