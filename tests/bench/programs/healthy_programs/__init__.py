"Healthy programs in the ways of public training code, written by people who saw no rule."
