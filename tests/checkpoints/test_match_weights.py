"match_weights: what fits, how sure it is, and what is refused. The figures are those of tests/bench."
import json
import os
import pickle
import tracemalloc

import pytest
import torch
from torch import nn

import hooklab as hl
from hooklab.checkpoints import reading
from hooklab.checkpoints.comparing_weights import is_weights
from support.checkpoints import Attends, Net, filled, net, renamed

pytestmark = pytest.mark.usefixtures("one_thread")


def saved(seed=3): return filled(net(), seed).state_dict()


def are_equal(a, b): return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in b)


# ---- how sure

def test_nothing_is_loaded_and_the_line_it_prints_loads():
    model, given = net(), renamed("module.{}")(saved())
    before = {name: t.clone() for name, t in model.state_dict().items()}
    found = hl.match_weights(model, given)
    assert are_equal(found.state_dict, saved()) and found.certain and not (found.missing or found.unused)
    assert are_equal(model.state_dict(), before)
    exec(found.code, {"model": model, "found": found})
    assert are_equal(model.state_dict(), saved())


def test_lists_that_begin_at_another_number_are_never_certain():
    def layers(): return nn.Sequential(*(nn.Linear(7, 7) for _ in range(6)))
    model = layers()
    given = {f"{int(name[0]) + 1}{name[1:]}": t for name, t in filled(layers(), 1).state_dict().items()}
    found = hl.match_weights(model, given)
    assert torch.equal(found.state_dict["0.weight"], given["1.weight"]) and not found.certain
    assert "certain" not in found.sure.values()
    lacking = {name: t for name, t in given.items() if name[0] != "3"}
    assert "certain" not in hl.match_weights(model, lacking).sure.values()


def test_lists_in_lists_are_counted_from_their_first_number():
    def stages(): return nn.Sequential(*(nn.Sequential(nn.Linear(7, 7), nn.LayerNorm(7)) for _ in range(3)))
    given = {".".join(str(int(p) + 1) if p.isdigit() else p for p in name.split(".")): t
             for name, t in filled(stages(), 5).state_dict().items()}
    found = hl.match_weights(stages(), given)
    assert are_equal(found.state_dict, filled(stages(), 5).state_dict())


def test_words_that_say_nothing_are_told_by_where_they_stand():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.pre, self.post, self.wide = nn.LayerNorm(8), nn.LayerNorm(8), nn.Linear(8, 8)
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.pre, self.blocks = nn.LayerNorm(8), nn.ModuleList(Block() for _ in range(3))
    words = {"pre": "zu", "post": "ka", "wide": "mo", "blocks": "ri"}
    right = filled(Model(), 6).state_dict()
    given = {".".join(words.get(p, p) for p in name.split(".")): t for name, t in reversed(right.items())}
    found = hl.match_weights(Model(), given)
    assert are_equal({n: found.state_dict[n] for n in right}, right)


def test_what_is_new_in_the_same_code_is_left_open():
    "A layer of the model and one of the checkpoint that have nothing in common but a usual shape."
    class Trunk(nn.Module):
        def __init__(self, **heads):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(9, 9) for _ in range(5))
            for name, head in heads.items(): setattr(self, name, head)
    model, other = Trunk(pooling=nn.Linear(9, 9)), filled(Trunk(transform=nn.Linear(9, 9)), 2)
    found = hl.match_weights(model, other.state_dict())
    assert found.missing == ["pooling.weight", "pooling.bias"]
    assert found.unused == ["transform.weight", "transform.bias"]


def test_square_matrices_among_transposed_ones_are_possible():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 9), nn.Linear(9, 2))
    given = {name: t.T.contiguous() if t.dim() == 2 else t for name, t in filled(nn.Sequential(
        nn.Linear(4, 4), nn.Linear(4, 9), nn.Linear(9, 2)), 1).state_dict().items()}
    found = hl.match_weights(model, given)
    assert found.sure["0.weight"] == "possible" and found.sure["1.weight"] == "likely" and not found.certain


def test_keys_without_a_bias_are_split_from_a_joined_one():
    class Cross(nn.Module):
        def __init__(self):
            super().__init__()
            self.q_proj, self.k_proj, self.v_proj = nn.Linear(6, 6), nn.Linear(6, 6, bias=False), nn.Linear(6, 6)
    right = filled(Cross(), 2).state_dict()
    given = {"qkv.weight": torch.cat([right[f"{r}_proj.weight"] for r in "qkv"]),
             "qkv.bias": torch.cat([right["q_proj.bias"], torch.zeros(6), right["v_proj.bias"]])}
    found = hl.match_weights(Cross(), given)
    assert are_equal(found.state_dict, right) and {*found.sure.values()} == {"possible"}


def test_of_two_state_dicts_the_other_one_is_named_and_rivals_are_not_certain():
    model, one, two = net(), saved(), saved(4)
    found = hl.match_weights(model, {"model": one, "ema": two, "epoch": 3})
    assert are_equal(found.state_dict, one) and found.certain and "ema" in str(found)
    found = hl.match_weights(model, {"left": one, "right": two})
    assert not found.certain and "which fits as well" in str(found)


def test_tied_weights_come_by_either_name_and_stay_one():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.out = nn.Embedding(11, 5), nn.Linear(5, 11, bias=False)
            self.out.weight = self.words.weight
    table = torch.rand(11, 5)
    for name in ("words.weight", "out.weight"):
        found = hl.match_weights(Tied(), {name: table})
        assert found.state_dict["words.weight"] is found.state_dict["out.weight"] and not found.missing


# ---- proved by a pass

@pytest.fixture
def attends():
    torch.manual_seed(2)
    right, model = Attends(), Attends()
    x = torch.randn(4, 6)
    return model, x, right(x), right.state_dict()


def test_a_pass_proves_what_order_alone_decided(attends):
    model, x, y, right = attends
    given = {f"t{i}": t for i, t in enumerate(right.values())}
    assert "certain" not in hl.match_weights(model, given).sure.values()
    found = hl.match_weights(model, given, inputs=x, output=y)
    left = [name for name, sure in found.sure.items() if sure != "certain"]
    assert left == ["k.bias"], "a softmax does not change with it"
    assert "proves 7 tensors" in str(found) and not model.o.weight.equal(right["o.weight"])


@pytest.mark.parametrize("swap", [("t0", "t4"), ("t3", "t5"), ("t2", "t6")])
def test_a_pass_with_another_output_proves_nothing(attends, swap):
    model, x, y, right = attends
    given = {f"t{i}": t for i, t in enumerate(right.values())}
    a, b = swap
    given[a], given[b] = given[b], given[a]
    found = hl.match_weights(model, given, inputs={"x": x}, output={"logits": y})
    assert "certain" not in found.sure.values() and "not all of them are right" in str(found)


def test_an_output_of_another_shape_is_an_error_that_says_both(attends):
    model, x, y, right = attends
    with pytest.raises(ValueError, match=r"\(4, 6\).*\(3, 6\)"): hl.match_weights(model, right, inputs=x, output=y[:3])


# ---- kinds of tensors

def test_meta_models_and_meta_checkpoints_are_matched_by_name_and_shape():
    with torch.device("meta"): model = net()
    assert are_equal(hl.match_weights(model, saved()).state_dict, saved())
    on_meta = {f"module.{name}": t.to("meta") for name, t in saved().items()}
    assert hl.match_weights(net(), on_meta).certain


def test_quantized_tensors():
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))
    quantized = {name: torch.quantize_per_tensor(t, .01, 0, torch.qint8) for name, t in model.state_dict().items()}
    assert hl.match_weights(model, quantized).certain
    packed = model.state_dict() | {"0.weight": torch.zeros(12, 1, dtype=torch.uint8), "0.weight.absmax": torch.ones(1)}
    found = hl.match_weights(model, packed)
    assert found.other_shape == {"0.weight": ((12, 1), (6, 4))} and found.unused == ["0.weight.absmax"]


def test_sharded_models_are_matched_and_told_how_to_load():
    from torch.distributed.tensor import DeviceMesh, distribute_tensor
    dist = torch.distributed
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh, model = DeviceMesh("cpu", [0]), net()
        for layer in (model.first, model.last):
            layer.weight = nn.Parameter(distribute_tensor(layer.weight.detach(), mesh))
        found = hl.match_weights(model, renamed("module.{}")(saved()))
        assert found.certain and "set_model_state_dict" in str(found)
        assert are_equal(hl.match_weights(net(), model.state_dict()).state_dict, model.state_dict())
        assert hl.compare(model.state_dict(), {name: t.clone() for name, t in model.state_dict().items()}).same
    finally: dist.destroy_process_group()


# ---- files

def test_files_folders_and_an_index(tmp_path):
    from safetensors.torch import save_file
    given, names = saved(), [*saved()]
    torch.save(given, tmp_path/"w.pt")
    save_file(given, tmp_path/"w.safetensors")
    (tmp_path/"split").mkdir()
    for i, some in enumerate((names[:4], names[4:])):
        save_file({n: given[n] for n in some}, tmp_path/f"split/part{i}.safetensors")
    index = {"weight_map": {n: f"part{int(i > 3)}.safetensors" for i, n in enumerate(names)}}
    (tmp_path/"split/model.safetensors.index.json").write_text(json.dumps(index))
    for path in (tmp_path/"w.pt", tmp_path/"w.safetensors", str(tmp_path/"split"),
                 tmp_path/"split/model.safetensors.index.json"):
        assert are_equal(hl.match_weights(net(), path).state_dict, given)


def sparse(path, shapes):
    "A safetensors file of these shapes that takes no room on the disk: its numbers are a hole."
    head, at = {}, 0
    for name, shape in shapes.items():
        size = 4*torch.Size(shape).numel()
        head[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(head).encode()
    text += b" "*(-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        f.truncate(8 + len(text) + at)


def test_a_file_larger_than_memory_is_matched_by_names_and_shapes(tmp_path):
    with torch.device("meta"): model = nn.Sequential(*(nn.Linear(100_000, 100_000) for _ in range(4)))
    sparse(tmp_path/"huge.safetensors", {f"net.{name}": t.shape for name, t in model.state_dict().items()})
    assert os.path.getsize(tmp_path/"huge.safetensors") > 150e9
    tracemalloc.start()
    found = hl.match_weights(model, tmp_path/"huge.safetensors")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.certain and len(found.sure) == 8 and peak < 50e6
    assert is_weights(tmp_path/"huge.safetensors"), "compare tells what it is without reading it"


def test_only_one_tensor_of_a_file_is_in_memory_at_a_time(tmp_path):
    from safetensors.torch import save_file
    save_file(saved(), tmp_path/"w.safetensors")
    found = hl.match_weights(net(), tmp_path/"w.safetensors")
    each = found.tensors()
    first = next(each)[1]
    second = next(each)[1]
    assert first.data_ptr() != second.data_ptr() and found._state_dict is None


class Runs:
    def __reduce__(self): return os.mkdir, (os.environ["HOOKLAB_TEST_MADE"],)


def test_a_pickle_with_code_is_refused_and_nothing_runs(tmp_path, monkeypatch):
    made = tmp_path/"made"
    monkeypatch.setenv("HOOKLAB_TEST_MADE", str(made))
    torch.save({"weights": saved(), "hook": Runs()}, tmp_path/"hostile.pt")
    (tmp_path/"bare.pkl").write_bytes(pickle.dumps(Runs(), protocol=4))
    torch.save({"model": nn.Linear(2, 2)}, tmp_path/"whole.pt")
    for name in ("hostile.pt", "bare.pkl", "whole.pt"):
        for call in (lambda path: hl.match_weights(net(), path), lambda path: hl.compare(path, saved())):
            with pytest.raises(ValueError) as raised: call(tmp_path/name)
            assert len(str(raised.value).splitlines()) == 1 and not made.exists()
            if name != "bare.pkl": assert "weights_only=False" in str(raised.value)


@pytest.mark.parametrize("spoil", [lambda b: b[:len(b)//2], lambda b: b"", lambda b: b[:40] + bytes(30) + b[70:],
                                   lambda b: b"\x89PNG" + b[4:], lambda b: b"\xff"*8 + b[8:]])
@pytest.mark.parametrize("name", ["w.pt", "w.safetensors"])
def test_a_torn_file_is_one_sentence(tmp_path, name, spoil):
    from safetensors.torch import save_file
    path = tmp_path/name
    torch.save(saved(), path) if name.endswith("pt") else save_file(saved(), path)
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(ValueError) as raised:
        for t in hl.match_weights(net(), path).state_dict.values(): t.sum()
    assert len(str(raised.value).splitlines()) == 1 and name in str(raised.value)


@pytest.mark.parametrize(("given", "said"), [
    (Net(), "state_dict"), (None, "state dict"), ({"epoch": 3, "lr": .1}, "no state dict"), (7, "state dict"),
    ({}, "0 of 13")])
def test_what_is_no_checkpoint(given, said):
    if given == {}: assert said in str(hl.match_weights(net(), given))
    else:
        with pytest.raises((TypeError, ValueError), match=said): hl.match_weights(net(), given)


def test_a_folder_without_or_with_several_checkpoints(tmp_path):
    with pytest.raises(ValueError, match="no checkpoint"): hl.match_weights(net(), tmp_path)
    for name in "ab": torch.save(saved(), tmp_path/f"{name}.pt")
    with pytest.raises(ValueError, match="name one"): hl.match_weights(net(), tmp_path)
    with pytest.raises(FileNotFoundError): hl.match_weights(net(), tmp_path/"none.pt")
    assert reading.is_checkpoint_file(tmp_path/"a.pt")
