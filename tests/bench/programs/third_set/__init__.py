"""Programs that were ported after the kept half had been run, while rules were written with both halves in view;
measured once."""
