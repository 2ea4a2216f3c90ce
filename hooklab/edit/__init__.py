"""Changes what a layer gets or returns, and clips gradients, as long as a `with` lasts."""
