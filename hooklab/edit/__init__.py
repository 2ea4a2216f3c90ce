"""Changes what a layer gets or returns, and clips gradients, for as long as a `with` lasts."""
