"""What preflight and diagnose share: rules, findings, and the how sure a finding may sound.

    found       `Finding`: what is wrong, where, how sure, and what helps
    rules       how a rule is registered, with everything known about what it finds
    levels      which word a kind of finding has earned: certain, likely, possible, or a note
    order       what follows from what, and causes first
    answer      one cause in full, what follows from it in a line each, and the rest by name
    time_limit  how much time is left, and what ends a check when there is none
"""
