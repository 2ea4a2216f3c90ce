"""Programs that were ported after the kept half had been run, by people who saw no rule. Measured once, while the rules
were written with both halves in view."""
