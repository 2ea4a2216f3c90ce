"""Follow a run call by call: the order of the layers, and where a NaN comes from.

    trace          the order of the layers, and checks of outputs and gradients
    timeline       which hook fired when
    call_timeline  every function that a pass calls
    bug_report     versions, devices and hooks, to paste into an issue
    nan            a package: which layer made the first NaN or Inf
    comparing      a package: where two models diverge, and which layer is at fault
    drift          a package: copies of a model that drift apart
"""
