"""What a model consists of and what it costs: summaries, shapes, multiply-adds, time and memory."""
