"""Statistics of activations, weights and integers, gathered in bounded memory."""
