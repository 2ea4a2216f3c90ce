"Programs that were ported after the first look at the fifth set, by people who saw no rule; measured once."
