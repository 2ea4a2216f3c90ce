"""What counts as right for the programs of this folder. Written before any tool was run on them.

A finding names the **cause** if somebody who reads it, and nothing else, changes the lines that the repair changes. It
is a true **symptom** if it is true of this run and follows from the fault, and a true **place** if it names a layer or
parameter of PLACE. Everything else that is more than a note is **misleading**: false, or a reason to change something
that the repair leaves alone. "Loss does not fall" is never a cause.

A finding that comes later is entered below a cause if its sentence alone leads to the repair in all programs that have
this cause, whichever they are: the sentence decides, not the programs."""

AREAS = ("loss and task", "data and labels", "structure", "parameters", "optimizer and schedule", "loop", "modes",
         "precision", "initialisation")

# The cause, and the findings of today that name it.
CAUSES = {
    # loss and task
    "activation before the loss": {"activation before the loss"},
    "one class": {"one class"},                    # softmax over one unit, or a cross-entropy with one class
    # a regression's loss for classes, or the reverse; kind or range of targets
    "loss does not fit the targets": {"loss does not fit the targets"},
    "labels broadcast": {"labels broadcast"},
    # a softmax, mean or loss over another dimension than the one that is meant
    "wrong axis": {"wrong axis", "softmax over samples"},
    # a sum that grows with the batch; a mean over what does not count, or taken twice
    "wrong reduction": {"sum over the batch", "divided by the batch again"},
    # padded places are a part of the loss, or are all that is ignored
    "padding counts": {"padding counts", "labels left out"},
    "wrong sign": {"wrong sign"},
    "a term has no gradient": {"term without gradient"},  # a part of the loss: detached, rounded, Python numbers
    "gradient where none is meant": {"gradients of another loss"},  # into a target, a baseline, a critic or a teacher
    "a term outweighs the others": {"sum over the batch"},
    # probabilities for logarithms, deviations for variances, swapped arguments
    "the loss takes another form": {"loss takes another form", "activation before the loss"},
    # data and labels
    "constant inputs": {"constant inputs"},
    "inputs not scaled": {"inputs not scaled", "data changed by reading"},
    "targets not scaled": {"targets not scaled"},
    "constant targets": {"constant targets"},
    # shuffled apart, shifted, of others
    "labels do not belong to inputs": {"labels not used", "target too far ahead", "labels look random",
                                       "inputs of other rows"},
    "labels wrongly encoded": {"loss does not fit the targets"},
    # another scale, order of channels or encoding
    "validation differs from training": {"validation differs from training"},
    "the answer is among the inputs": {"target among the inputs", "later places are seen"},
    "one class is most of the data": {"one class is most of the data"},
    "data not shuffled": {"data not shuffled"},
    "samples repeat": {"samples alike", "samples repeat", "validation repeats training"},
    # structure
    "no non-linearity": {"no non-linearity"},
    # of an output that has to be free, or of one that is cut off
    "activation at the wrong place": {"activation before the loss"},
    # a view or reshape in place of a permutation, within a sample
    "places mixed up": {"places mixed up", "wrong axis"},
    "samples leak": {"samples leak"},      # a view or reshape that mixes samples, a norm or attention over the batch
    "later places are seen": {"later places are seen"},  # by a model that has to predict them
    "mask ignored": {"mask ignored"},      # missing, inverted, or for other places
    "input unused": {"input unused", "result not used"},
    "layers shared by mistake": {"one layer for several"},  # `[layer]*n`, one layer in several places
    "too narrow": set(),
    "dead units": {"dead units"},
    # parameters
    "not registered": {"not registered"},               # in a list or dict of Python, made in forward, in a criterion
    "not in the optimizer": {"not in the optimizer"},
    "other parameters in the optimizer": {"other parameters in the optimizer", "twice in the optimizers"},
    "frozen part": {"frozen part"},
    "detached part": {"not trained", "gradient is cut"},  # `detach`, `no_grad`, `.data`, `numpy`, a new tensor
    "never ran": {"never ran"},
    # optimizer and schedule
    "learning rate too large": {"learning rate too large"},
    "learning rate too small": {"learning rate too small"},
    "scheduler each batch": {"scheduler each batch"},
    "schedule never moves": {"schedule never moves"},
    "schedule does not fit": {"schedule does not fit"},  # the rate falls, rises or is multiplied where it should not be
    "weight decay too strong": {"weight decay too strong"},
    "clipping too tight": {"clipping too tight"},
    "optimizer made anew": {"optimizer made anew"},  # in the loop, so that it forgets
    "other optimizer": {"optimizer makes odd steps"},  # its kind or another option of it does not fit
    # loop
    "gradients not cleared": {"no zero_grad"},
    "step before backward": {"step before backward"},  # or gradients cleared between backward and step
    "no step": {"no step", "gradients thrown away"},  # the optimizer's step is never called, or seldom
    # the loss is not divided, or the wrong steps count
    "accumulation": {"steps while gathering", "gradients thrown away"},
    "state goes on": {"state goes on"},    # a hidden state or memory that should be reset or detached
    # a hidden state or memory that should go on; weights that are to be kept
    "state is lost": {"state is lost", "kept without a copy"},
    "other loss": {"result not used"},     # backward is called on another loss than the one that is meant
    "parts in a wrong order": set(),       # of a GAN, an actor and critic, a teacher
    "target network": {"copy does not follow", "statistics stay behind"},  # never updated, or trained by mistake
    # modes
    "eval mode": {"eval mode", "part in eval mode"},  # in training
    "train mode": {"train mode"},          # in evaluation
    "batch norm": {"batch norm", "statistics stay behind"},  # of too few samples, or with statistics that do not fit
    "random in eval": {"random in eval"},
    "no gradient": {"gradient is cut"},    # `no_grad` or `inference_mode` around the training step
    # precision
    "NaN or Inf": {"NaN or Inf"},          # a logarithm, root, division or exponent without a guard: with its place
    "float16 limit": {"float16 limit", "stepped twice"},  # or a step that is made where the scaler leaves it out
    "clipping before unscaling": {"clipping before unscaling", "skipped steps"},
    "epsilon": {"epsilon is lost"},        # too large, too small, or lost in the dtype
    "rounded": {"lost in rounding"},       # to whole numbers, or to few bits
    # initialisation
    "units alike": {"units alike", "stuck at zero", "first weights"},
    "weights too large": {"first loss too high", "activations explode", "first weights"},
    "weights too small": {"activations vanish", "gradients vanish", "scale of a norm", "first weights"},
    "saturated": {"saturated", "first weights"},
    "not initialised": {"not initialised", "first weights"}, # a parameter that is left as the memory was
}
